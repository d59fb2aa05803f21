//! Functions in WebAssembly, given as text (WAT).
//!
//! The module exports a function of the same name, its memory, and a global `_scylla_abi` with the address of
//! the version of the calling convention (docs/functions.md). Numbers and booleans are passed directly if the
//! function takes no nulls; all other values are passed as bytes in memory, by one number that combines size
//! and address.
//! Invariant: every call has an instance of its own, so no state is kept; imports exist only to fail. A call
//! stops at the end of its slice's fuel, and continues in the next slice.

use model::CqlType;
use model::schema::FunctionDefinition;
use wasmi::{
    Config, EnforcedLimits, Engine, ExternType, Func, Instance, Linker, Memory, Module, ResumableCall,
    ResumableCallOutOfFuel, Store, StoreLimits, StoreLimitsBuilder, TrapCode, Val, ValType,
};

use super::slice::Slice;
use super::{Step, wat};

/// Fuel of one call: about the number of instructions.
const FUEL_MAX: u64 = 20_000_000;
/// Fuel of one slice: about 200 microseconds. The work before the function itself (a start function, memory
/// for the arguments) cannot stop and has one slice.
const FUEL_SLICE: u32 = 100_000;
/// Fuel charged for the start of a call, in which an instance is made.
const FUEL_OF_BEGINNING: u64 = 5_000;
/// Most bytes of memory of one call.
const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Most entries in tables of one call.
const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Most functions that a module may import: each call makes all of them, without a pause.
const IMPORTS_MAX: usize = 100;
/// Bytes of source per unit of fuel charged for the start of a call.
const SOURCE_BYTES_PER_FUEL: u64 = 4;
/// Bytes by which memory grows.
const PAGE_BYTES: usize = 64 << 10;

/// A compiled function.
#[derive(Debug)]
pub(super) struct WasmFunction {
    engine: Engine,
    module: Module,
}

/// A call that has begun.
pub(super) struct WasmCall {
    instance: Instantiated,
    next: Next,
    /// Fuel that the call may still use.
    left: u64,
}

/// How the call continues.
enum Next {
    Begin(Func, Vec<Val>),
    Resume(ResumableCallOutOfFuel),
}

struct Instantiated {
    store: Store<StoreLimits>,
    instance: Instance,
    memory: Memory,
}

/// How a value is passed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Passing {
    I32,
    I64,
    F32,
    F64,
    /// As the size and the address of its bytes.
    Memory,
}

impl Passing {
    fn of(ty: &CqlType, takes_null: bool) -> Self {
        match ty {
            _ if takes_null => Self::Memory,
            CqlType::Boolean | CqlType::Tinyint | CqlType::Smallint | CqlType::Int => Self::I32,
            CqlType::Bigint => Self::I64,
            CqlType::Float => Self::F32,
            CqlType::Double => Self::F64,
            _ => Self::Memory,
        }
    }

    fn ty(self) -> ValType {
        match self {
            Self::I32 => ValType::I32,
            Self::I64 | Self::Memory => ValType::I64,
            Self::F32 => ValType::F32,
            Self::F64 => ValType::F64,
        }
    }
}

impl WasmFunction {
    /// Compiles the module and checks that it follows the calling convention.
    ///
    /// # Errors
    /// Why the module was rejected.
    pub(super) fn compile(definition: &FunctionDefinition) -> Result<Self, String> {
        let mut config = Config::default();
        config.consume_fuel(true);
        // At most 1000 globals and 1000 segments, and 100 tables: a call makes them without a pause.
        config.enforced_limits(EnforcedLimits::strict());
        let engine = Engine::new(&config);
        let module = Module::new(&engine, definition.body.as_bytes()).or_else(|error| {
            let Some(body) = wat::with_branches(&definition.body) else { return Err(error) };
            Module::new(&engine, body.as_bytes())
        });
        let module = module.map_err(|error| error.to_string())?;
        let imports = module.imports().count();
        if imports > IMPORTS_MAX {
            return Err(format!("the module imports {imports} things, at most {IMPORTS_MAX} are allowed"));
        }
        let Some(ExternType::Func(exported)) = module.get_export(&definition.name) else {
            return Err(format!("the module exports no function {}", definition.name));
        };
        let takes_null = definition.called_on_null_input;
        let parameters: Vec<ValType> =
            definition.argument_types().map(|ty| Passing::of(ty, takes_null).ty()).collect();
        let result = Passing::of(&definition.returns, takes_null).ty();
        if exported.params() != parameters || exported.results() != [result] {
            return Err(format!(
                "the exported function has type {:?} -> {:?}, its declaration asks for {parameters:?} -> {:?}",
                exported.params(),
                exported.results(),
                [result]
            ));
        }
        let function = Self { engine, module };
        let instance = function.start()?;
        // If no value is passed in memory, the versions do not differ. The global exists then too, but
        // compilers of other languages put the mark where its address is read, not its value.
        let mut types = definition.argument_types().chain([&definition.returns]);
        if types.any(|ty| Passing::of(ty, takes_null) == Passing::Memory) {
            let version = instance.abi()?;
            if !(1..=2).contains(&version) {
                return Err(format!("version {version} of the calling convention is not supported"));
            }
        } else {
            instance.abi_address()?;
        }
        Ok(function)
    }

    fn start(&self) -> Result<Instantiated, String> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MEMORY_BYTES_MAX)
            .table_elements(TABLE_ELEMENTS_MAX)
            .instances(1)
            .memories(1)
            .build();
        let mut store = Store::new(&self.engine, limits);
        store.limiter(|limits| limits);
        store.set_fuel(u64::from(FUEL_SLICE)).map_err(|error| error.to_string())?;
        let mut linker = Linker::new(&self.engine);
        for import in self.module.imports() {
            let name = format!("{}.{}", import.module(), import.name());
            let ExternType::Func(ty) = import.ty() else {
                return Err(format!(
                    "the module imports {name}, and there is nothing to import but functions"
                ));
            };
            let called = name.clone();
            let refuse = Func::new(&mut store, ty.clone(), move |_, _, _| {
                Err(wasmi::Error::new(format!("the function called {called}, which is not there")))
            });
            linker.define(import.module(), import.name(), refuse).map_err(|error| error.to_string())?;
        }
        let instance =
            linker.instantiate_and_start(&mut store, &self.module).map_err(|error| error.to_string())?;
        let memory = instance.get_memory(&store, "memory").ok_or("the module exports no memory")?;
        Ok(Instantiated { store, instance, memory })
    }

    /// Prepares a call of the function, before its first slice.
    ///
    /// # Errors
    /// Errors of the instance, or of arguments that do not fit into its memory.
    pub(super) fn begin(
        &self,
        definition: &FunctionDefinition,
        arguments: &[Option<&[u8]>],
    ) -> Result<WasmCall, String> {
        let mut instance = self.start()?;
        let takes_null = definition.called_on_null_input;
        let mut values = Vec::with_capacity(arguments.len());
        for (ty, argument) in definition.argument_types().zip(arguments) {
            values.push(instance.argument(ty, Passing::of(ty, takes_null), *argument)?);
        }
        let function = instance
            .instance
            .get_func(&instance.store, &definition.name)
            .ok_or_else(|| format!("the module exports no function {}", definition.name))?;
        Ok(WasmCall { instance, next: Next::Begin(function, values), left: FUEL_MAX })
    }

    /// Continues a call for a slice.
    ///
    /// # Errors
    /// Why the call stopped; also a result outside of its memory.
    pub(super) fn run(
        definition: &FunctionDefinition,
        call: Box<WasmCall>,
        slice: &Slice,
    ) -> Result<Step<Box<WasmCall>>, String> {
        let WasmCall { mut instance, next, left } = *call;
        let text = |error: wasmi::Error| error.to_string();
        let mut granted = u64::from(slice.units(FUEL_SLICE));
        if let Next::Resume(paused) = &next {
            // One instruction may need more than a slice.
            granted = granted.max(paused.required_fuel());
        }
        granted = granted.min(left);
        instance.store.set_fuel(granted).map_err(text)?;
        let mut results = [Val::I64(0)];
        let began = match next {
            Next::Begin(function, values) => {
                let of_source = definition.body.len() as u64 / SOURCE_BYTES_PER_FUEL;
                slice.spend(FUEL_OF_BEGINNING + of_source, FUEL_SLICE);
                function.call_resumable(&mut instance.store, &values, &mut results)
            }
            Next::Resume(paused) => paused.resume(&mut instance.store, &mut results),
        };
        let used = granted.saturating_sub(instance.store.get_fuel().map_err(text)?);
        slice.spend(used, FUEL_SLICE);
        match began.map_err(text)? {
            ResumableCall::Finished => {
                let passing = Passing::of(&definition.returns, definition.called_on_null_input);
                instance.result(&definition.returns, &results[0], passing).map(Step::Done)
            }
            ResumableCall::HostTrap(trap) => Err(trap.into_host_error().to_string()),
            ResumableCall::OutOfFuel(paused) => {
                let left = left - used.min(left);
                if paused.required_fuel() > left {
                    return Err(text(TrapCode::OutOfFuel.into()));
                }
                slice.end();
                Ok(Step::Paused(Box::new(WasmCall { instance, next: Next::Resume(paused), left })))
            }
        }
    }
}

impl WasmCall {
    /// Bytes of the instance, which are mainly its memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.instance.memory.data_size(&self.instance.store)
    }
}

impl Instantiated {
    /// The version of the calling convention.
    fn abi(&self) -> Result<u32, String> {
        let bytes = self.bytes(self.abi_address()?, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| "a version has four bytes")?))
    }

    /// The address, in the module's memory, of the version.
    fn abi_address(&self) -> Result<u32, String> {
        let global = self.instance.get_global(&self.store, "_scylla_abi");
        match global.map(|global| global.get(&self.store)) {
            Some(Val::I32(address)) => Ok(address as u32),
            _ => Err("the module exports no global _scylla_abi of type i32".to_owned()),
        }
    }

    fn bytes(&self, address: u32, size: u32) -> Result<&[u8], String> {
        let (from, size) = (address as usize, size as usize);
        self.memory
            .data(&self.store)
            .get(from..from.saturating_add(size))
            .ok_or_else(|| format!("{size} bytes at {from} lie outside of the module's memory"))
    }

    fn argument(&mut self, ty: &CqlType, passing: Passing, value: Option<&[u8]>) -> Result<Val, String> {
        let broken = || format!("an argument is no {ty}");
        if passing == Passing::Memory {
            return self.put(value).map(Val::I64);
        }
        let value = value.ok_or_else(broken)?;
        Ok(match passing {
            Passing::F32 => Val::F32(f32::from_be_bytes(value.try_into().map_err(|_| broken())?).into()),
            Passing::F64 => Val::F64(f64::from_be_bytes(value.try_into().map_err(|_| broken())?).into()),
            Passing::I64 => Val::I64(i64::from_be_bytes(value.try_into().map_err(|_| broken())?)),
            _ => {
                let first = *value.first().filter(|_| value.len() <= 4).ok_or_else(broken)?;
                let mut wide = [if first >= 0x80 && *ty != CqlType::Boolean { 0xff } else { 0 }; 4];
                wide[4 - value.len()..].copy_from_slice(value);
                Val::I32(i32::from_be_bytes(wide))
            }
        })
    }

    /// Copies bytes into memory; returns the number of size and address.
    fn put(&mut self, value: Option<&[u8]>) -> Result<i64, String> {
        const NULL: i64 = -1 << 32;
        let Some(value) = value else { return Ok(NULL) };
        let size = u32::try_from(value.len()).map_err(|_| "an argument is too long")?;
        let address = if self.abi()? == 2 {
            let allocate = self
                .instance
                .get_typed_func::<i32, i32>(&self.store, "_scylla_malloc")
                .map_err(|error| format!("_scylla_malloc: {error}"))?;
            allocate.call(&mut self.store, size as i32).map_err(|error| error.to_string())? as u32
        } else {
            let address = self.memory.data(&self.store).len();
            let pages = value.len().div_ceil(PAGE_BYTES).max(1) as u64;
            self.memory.grow(&mut self.store, pages).map_err(|error| error.to_string())?;
            u32::try_from(address).map_err(|_| "the module's memory is full")?
        };
        self.memory
            .write(&mut self.store, address as usize, value)
            .map_err(|_| format!("{size} bytes at {address} lie outside of the module's memory"))?;
        Ok(i64::from(size) << 32 | i64::from(address))
    }

    fn result(&self, ty: &CqlType, value: &Val, passing: Passing) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(match (passing, value) {
            (Passing::Memory, Val::I64(place)) => {
                let (size, address) = ((*place >> 32) as i32, *place as u32);
                match u32::try_from(size) {
                    Err(_) => return Ok(None),
                    Ok(size) => self.bytes(address, size)?.to_vec(),
                }
            }
            (Passing::I64, Val::I64(number)) => number.to_be_bytes().to_vec(),
            (Passing::F32, Val::F32(number)) => f32::from(*number).to_be_bytes().to_vec(),
            (Passing::F64, Val::F64(number)) => f64::from(*number).to_be_bytes().to_vec(),
            (Passing::I32, Val::I32(number)) => match ty {
                CqlType::Boolean => vec![u8::from(*number != 0)],
                CqlType::Tinyint => (*number as i8).to_be_bytes().to_vec(),
                CqlType::Smallint => (*number as i16).to_be_bytes().to_vec(),
                _ => number.to_be_bytes().to_vec(),
            },
            _ => return Err(format!("{value:?} was returned where a {ty} is declared")),
        }))
    }
}
