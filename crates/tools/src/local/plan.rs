//! The nodes of a cluster: their addresses, folders and command lines.
//!
//! Pure: what was asked for and what the directory has in, nodes out. More nodes than the directory has are
//! added; fewer, or others, are refused.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::directory::Description;
use super::options::StartOptions;
use super::{CQL_PORT, LocalError, NODES_MAX, SHARD_AWARE_PORT, STORAGE_PORT};

/// Nodes of a new directory if nothing is said.
const NODES: usize = 3;
const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Options of `ceto server` that make a node a part of this cluster, so that none may be given for all.
const OWN: [&str; 6] = ["--workdir", "--listen", "--seeds", "--port", "--found", "--dc"];

/// A node as it is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// From 1.
    pub(super) number: usize,
    pub(super) address: Ipv4Addr,
    /// Command line of this program that runs it.
    pub(super) arguments: Vec<OsString>,
    /// Ports that it listens on in any case.
    pub(super) ports: Vec<u16>,
}

/// The nodes that the directory will have: those that it has, and those that are added.
///
/// # Errors
/// [`LocalError::OtherNodes`] if that would leave out or change one it has; [`LocalError::Usage`].
pub(super) fn describe(
    directory: &Path,
    options: &StartOptions,
    known: Option<&Description>,
) -> Result<Description, LocalError> {
    let had = known.map_or(0, |known| known.data_centers.len());
    let asked = match (options.nodes.map(usize::from), &options.dcs) {
        (Some(nodes), Some(dcs)) if nodes != dcs.len() => {
            let message = format!("--nodes {nodes} and {} nodes in --dcs contradict each other", dcs.len());
            return Err(LocalError::Usage(message));
        }
        (Some(nodes), _) => nodes,
        (None, Some(dcs)) => dcs.len(),
        (None, None) if had > 0 => had,
        (None, None) => NODES,
    };
    let first = options.first.unwrap_or_else(|| known.map_or(FIRST, |known| known.first));
    let data_centers = match (&options.dcs, known) {
        (Some(dcs), _) => dcs.iter().cloned().map(Some).collect(),
        // Nodes without a word about them are in the default data center, or stay where they are.
        (None, Some(known)) if asked == had => known.data_centers.clone(),
        (None, Some(known)) if asked > had && known.data_centers.iter().any(Option::is_some) => {
            let advice = "say with --dcs where the new nodes are".to_owned();
            return Err(other_nodes(directory, known, format!("{asked} were asked for"), advice));
        }
        (None, _) => vec![None; asked],
    };
    let wanted = Description { first, data_centers };
    if let Some(known) = known {
        check(directory, known, &wanted)?;
    }
    if usize::from(first.octets()[3]) + asked > 255 {
        return Err(LocalError::Usage(format!("{asked} addresses from {first} on are not of one network")));
    }
    assert!((1..=NODES_MAX).contains(&asked), "{asked} nodes after the command line was read");
    Ok(wanted)
}

/// Refuses nodes that are not those of the directory and further ones.
fn check(directory: &Path, known: &Description, wanted: &Description) -> Result<(), LocalError> {
    let (had, asked) = (known.data_centers.len(), wanted.data_centers.len());
    if asked < had {
        let advice = format!("leave out --nodes, or give {had} or more");
        return Err(other_nodes(directory, known, format!("{asked} were asked for"), advice));
    }
    if wanted.first != known.first {
        let advice = format!("use --first {}", known.first);
        return Err(other_nodes(directory, known, format!("{} was asked for", wanted.first), advice));
    }
    let name = |center: &Option<String>| center.clone().unwrap_or_else(|| "the default one".to_owned());
    for (node, (was, asked)) in known.data_centers.iter().zip(&wanted.data_centers).enumerate() {
        if was != asked {
            let asked = format!("node {} is in data center {}, not {}", node + 1, name(was), name(asked));
            let advice = "leave out --dcs, or add new nodes at its end".to_owned();
            return Err(other_nodes(directory, known, asked, advice));
        }
    }
    Ok(())
}

fn other_nodes(directory: &Path, known: &Description, asked: String, advice: String) -> LocalError {
    let nodes = known.data_centers.len();
    let plural = if nodes == 1 { "" } else { "s" };
    let made = format!("{nodes} node{plural} from {} on", known.first);
    LocalError::OtherNodes { directory: directory.to_owned(), made, asked, advice }
}

/// The nodes of a description, with their command lines. `share` is the memory of each if nothing is said.
///
/// # Errors
/// [`LocalError::Usage`] for an option that may not be given for all nodes.
pub(super) fn nodes(
    directory: &Path,
    options: &StartOptions,
    description: &Description,
    share: u64,
) -> Result<Vec<Node>, LocalError> {
    for own in OWN {
        if has(&options.server, own) {
            let message = format!("{own} behind -- would be the same for every node: `ceto local` gives it");
            return Err(LocalError::Usage(message));
        }
    }
    let common = common(options, share);
    let first = u32::from(description.first);
    let nodes = description.data_centers.iter().enumerate();
    Ok(nodes
        .map(|(index, center)| {
            let number = index + 1;
            let address = Ipv4Addr::from(first + index as u32);
            let mut arguments: Vec<OsString> = vec!["server".into(), "--workdir".into()];
            arguments.push(directory.join(format!("node-{number}")).into());
            let own = [("--listen", address), ("--seeds", description.first)];
            arguments.extend(own.iter().flat_map(|(name, value)| [(*name).into(), value.to_string().into()]));
            if let Some(center) = center {
                arguments.extend(["--dc".into(), center.into()]);
            }
            arguments.extend(common.iter().map(OsString::from));
            let mut ports = vec![CQL_PORT, STORAGE_PORT];
            if !has(&options.server, "--shard-aware-port") {
                ports.push(SHARD_AWARE_PORT);
            }
            Node { number, address, arguments, ports }
        })
        .collect())
}

/// Options of every node: the user's own, and the defaults of a local cluster for those left out.
fn common(options: &StartOptions, share: u64) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|_| !has(&options.server, name)) {
            words.extend([name.to_owned(), value]);
        }
    };
    add("--smp", Some(options.smp.unwrap_or(1).to_string()));
    add("--memory", Some(options.memory.clone().unwrap_or_else(|| share.to_string())));
    add("--driver", options.driver.clone());
    // Nodes on one machine share its processors.
    if !has(&options.server, "--overprovisioned") {
        words.push("--overprovisioned".to_owned());
    }
    words.extend_from_slice(&options.server);
    words
}

/// Whether an option is among the words, alone or with its value behind `=`.
fn has(words: &[String], option: &str) -> bool {
    words.iter().any(|word| word.split('=').next() == Some(option))
}

impl Node {
    /// Its name in lines of the log.
    pub(super) fn name(&self) -> String {
        format!("node-{}", self.number)
    }

    /// Its address.
    pub(super) fn ip(&self) -> IpAddr {
        self.address.into()
    }
}

#[cfg(test)]
mod tests;
