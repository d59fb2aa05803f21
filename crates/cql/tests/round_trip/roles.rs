//! Generates statements about roles, permissions, identities and service levels.

use cql::ast::*;
use proptest::prelude::*;

use crate::schema::{properties, property_map};
use crate::terms::*;

/// A name that keeps its case, as users and identities do.
fn verbatim() -> BoxedStrategy<Ident> {
    text().prop_map(|name| Ident { name, quoted: true }).boxed()
}

fn role_option() -> BoxedStrategy<RoleOption> {
    let texts = || prop::collection::vec(text(), 1..3);
    prop_oneof![
        text().prop_map(RoleOption::Password),
        text().prop_map(RoleOption::HashedPassword),
        property_map().prop_map(RoleOption::Options),
        any::<bool>().prop_map(RoleOption::Superuser),
        any::<bool>().prop_map(RoleOption::Login),
        Just(RoleOption::AccessToAllDatacenters),
        texts().prop_map(RoleOption::AccessToDatacenters),
        Just(RoleOption::AccessFromAllCidrs),
        texts().prop_map(RoleOption::AccessFromCidrs),
    ]
    .boxed()
}

fn role() -> BoxedStrategy<Statement> {
    // An option may be given once, and one of the two kinds of password.
    let kind = |option: &RoleOption| match option {
        RoleOption::HashedPassword(_) => std::mem::discriminant(&RoleOption::Password(String::new())),
        option => std::mem::discriminant(option),
    };
    let options = move || {
        prop::collection::vec(role_option(), 0..3).prop_map(move |mut options| {
            let mut seen = Vec::new();
            options.retain(|option| {
                !seen.contains(&kind(option)) && {
                    seen.push(kind(option));
                    true
                }
            });
            options
        })
    };
    prop_oneof![
        (any::<bool>(), name(), options()).prop_map(|(if_not_exists, name, options)| {
            Statement::CreateRole(CreateRole { if_not_exists, name, options })
        }),
        (any::<bool>(), name(), options()).prop_map(|(if_exists, name, options)| Statement::AlterRole(
            AlterRole { if_exists, name, options }
        )),
        (any::<bool>(), name())
            .prop_map(|(if_exists, name)| Statement::DropRole(DropRole { if_exists, name })),
        (name(), name()).prop_map(|(role, grantee)| Statement::GrantRole(GrantRole { role, grantee })),
        (name(), name()).prop_map(|(role, revokee)| Statement::RevokeRole(RevokeRole { role, revokee })),
        (prop::option::of(name()), any::<bool>())
            .prop_map(|(of, recursive)| Statement::ListRoles(ListRoles { of, recursive })),
    ]
    .boxed()
}

fn user() -> BoxedStrategy<Statement> {
    let password = || {
        prop::option::of(prop_oneof![
            text().prop_map(UserPassword::Plain),
            text().prop_map(UserPassword::Hashed)
        ])
    };
    let superuser = || prop::option::of(any::<bool>());
    prop_oneof![
        (any::<bool>(), verbatim(), password(), superuser()).prop_map(
            |(if_not_exists, name, password, superuser)| {
                Statement::CreateUser(CreateUser { if_not_exists, name, password, superuser })
            }
        ),
        (any::<bool>(), verbatim(), password(), superuser()).prop_map(
            |(if_exists, name, password, superuser)| {
                Statement::AlterUser(AlterUser { if_exists, name, password, superuser })
            }
        ),
        (any::<bool>(), verbatim())
            .prop_map(|(if_exists, name)| Statement::DropUser(DropUser { if_exists, name })),
        Just(Statement::ListUsers),
        (any::<bool>(), verbatim(), verbatim()).prop_map(|(if_not_exists, identity, role)| {
            Statement::AddIdentity(AddIdentity { if_not_exists, identity, role })
        }),
        (any::<bool>(), verbatim())
            .prop_map(|(if_exists, identity)| Statement::DropIdentity(DropIdentity { if_exists, identity })),
    ]
    .boxed()
}

fn resource() -> BoxedStrategy<Resource> {
    prop_oneof![
        prop::sample::select(vec![
            Resource::AllKeyspaces,
            Resource::AllRoles,
            Resource::AllFunctions,
            Resource::AllMbeans,
        ]),
        name().prop_map(Resource::Keyspace),
        name().prop_map(Resource::AllTables),
        qualified().prop_map(Resource::Table),
        name().prop_map(Resource::Role),
        name().prop_map(Resource::AllFunctionsIn),
        (qualified(), prop::collection::vec(type_name(), 0..3))
            .prop_map(|(name, argument_types)| Resource::Function { name, argument_types }),
        Just(Resource::Mbean("a:b=c".to_owned())),
        Just(Resource::Mbeans("a:*".to_owned())),
    ]
    .boxed()
}

fn permission() -> BoxedStrategy<Statement> {
    let any_permissions = || prop::collection::vec(prop::sample::select(&Permission::ALL[..]), 1..3);
    // AUTHORIZE applies to every resource.
    let applicable = || {
        let list = any_permissions().prop_map(|mut list| {
            list.push(Permission::Authorize);
            Permissions::List(list)
        });
        prop_oneof![Just(Permissions::All), list]
    };
    let listed = prop_oneof![Just(Permissions::All), any_permissions().prop_map(Permissions::List)];
    prop_oneof![
        (applicable(), resource(), name()).prop_map(|(permissions, resource, grantee)| {
            Statement::GrantPermissions(GrantPermissions { permissions, resource, grantee })
        }),
        (applicable(), resource(), name()).prop_map(|(permissions, resource, revokee)| {
            Statement::RevokePermissions(RevokePermissions { permissions, resource, revokee })
        }),
        (listed, prop::option::of(resource()), prop::option::of(name()), any::<bool>()).prop_map(
            |(permissions, resource, of, recursive)| {
                Statement::ListPermissions(ListPermissions { permissions, resource, of, recursive })
            }
        ),
    ]
    .boxed()
}

fn service_level() -> BoxedStrategy<Statement> {
    let listed = prop_oneof![
        name().prop_map(ListServiceLevel::One),
        Just(ListServiceLevel::All),
        name().prop_map(ListServiceLevel::AttachedTo),
        Just(ListServiceLevel::AllAttached),
        name().prop_map(ListServiceLevel::EffectiveFor),
    ];
    prop_oneof![
        (any::<bool>(), name(), properties(0..3)).prop_map(|(if_not_exists, name, properties)| {
            Statement::CreateServiceLevel(CreateServiceLevel { if_not_exists, name, properties })
        }),
        (name(), properties(1..3)).prop_map(|(name, properties)| {
            Statement::AlterServiceLevel(AlterServiceLevel { name, properties })
        }),
        (any::<bool>(), name())
            .prop_map(|(if_exists, name)| Statement::DropServiceLevel(DropServiceLevel { if_exists, name })),
        (name(), name())
            .prop_map(|(name, role)| Statement::AttachServiceLevel(AttachServiceLevel { name, role })),
        name().prop_map(|role| Statement::DetachServiceLevel(DetachServiceLevel { role })),
        listed.prop_map(Statement::ListServiceLevel),
    ]
    .boxed()
}

pub(crate) fn role_change() -> BoxedStrategy<Statement> {
    prop_oneof![role(), user(), permission(), service_level()].boxed()
}
