//! Names of a simulated disk that somebody takes away behind a node's back, and puts back.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::file;
use reactor::sim::World;

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

/// A world whose one node makes some names durably, and says at each start what it finds in `/a`.
fn world() -> (World, reactor::sim::NodeId, Rc<RefCell<Vec<String>>>) {
    let mut world = World::new(3);
    let found: Rc<RefCell<Vec<String>>> = Rc::default();
    let place = Rc::clone(&found);
    let node = world.add_node(1, move |_| {
        let place = Rc::clone(&place);
        async move {
            if !file::exists("/made").await.unwrap() {
                file::create_dir_all("/a/b").await.unwrap();
                // Outermost first: what a folder has is durable only once the folder's own name is.
                for directory in ["/", "/a"] {
                    file::sync_dir(directory).await.unwrap();
                }
                file::write_all_atomic("/a/b/one", b"first").await.unwrap();
                file::write_all_atomic("/a/two", b"second").await.unwrap();
                file::hard_link("/a/b/one", "/a/link").await.unwrap();
                file::sync_dir("/a").await.unwrap();
                file::write_all_atomic("/made", b"").await.unwrap();
            }
            let entries = file::read_dir("/a").await.unwrap_or_default();
            place.replace(entries.into_iter().map(|entry| entry.name).collect());
        }
    });
    world.run().unwrap();
    world.crash(node);
    (world, node, found)
}

#[test]
fn a_name_that_is_taken_away_is_gone_for_good_until_it_is_put_back_as_it_was() {
    let (mut world, node, found) = world();
    let all = paths(&["/a", "/a/b", "/a/b/one", "/a/link", "/a/two", "/made"]);
    assert_eq!(world.names(node), all);
    assert_eq!(world.files(node), paths(&["/a/b/one", "/a/link", "/a/two", "/made"]));

    let taken = world.take_away(node, "/a/b").unwrap();
    assert_eq!(taken.path(), Path::new("/a/b"));
    assert_eq!(taken.paths().collect::<Vec<_>>(), [Path::new("/a/b"), Path::new("/a/b/one")]);
    world.restart(node);
    world.run().unwrap();
    assert_eq!(*found.borrow(), ["link", "two"]);
    world.crash(node);
    assert_eq!(world.names(node), paths(&["/a", "/a/link", "/a/two", "/made"]));
    assert_eq!(world.read_file(node, "/a/link").as_deref(), Some(&b"first"[..]), "it has another name");

    assert!(world.put_back(node, &taken));
    assert_eq!(world.names(node), all);
    assert!(world.damage_file(node, "/a/link", b"both".to_vec()));
    assert_eq!(world.read_file(node, "/a/b/one").as_deref(), Some(&b"both"[..]), "one file, two names");
    assert!(world.take_away(node, "/nothing").is_none());
}

#[test]
fn what_was_made_under_the_name_meanwhile_goes_and_a_folder_that_is_gone_takes_nothing() {
    let (mut world, node, _) = world();
    let folder = world.take_away(node, "/a").unwrap();
    let made = world.take_away(node, "/made").unwrap();
    // The node makes all of it anew.
    world.restart(node);
    world.run().unwrap();
    world.crash(node);
    assert!(world.damage_file(node, "/a/two", b"another".to_vec()));
    assert!(world.put_back(node, &folder) && world.put_back(node, &made));
    for (path, content) in [("/a/b/one", "first"), ("/a/link", "first"), ("/a/two", "second")] {
        assert_eq!(world.read_file(node, path).as_deref(), Some(content.as_bytes()), "{path}");
    }
    let inner = world.take_away(node, "/a/b").unwrap();
    world.take_away(node, "/a").unwrap();
    assert!(!world.put_back(node, &inner));
    assert_eq!(world.names(node), paths(&["/made"]));
}
