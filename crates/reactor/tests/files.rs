//! Files on real drivers: written data is read back at any alignment; names; locks.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::ErrorKind;
use std::path::PathBuf;

use reactor::file::{self, AlignedBuf, File, OpenOptions};
use reactor::metrics::Value;
use reactor::{Config, DriverChoice, Group, run_one, spawn};

fn drivers() -> Vec<DriverChoice> {
    vec![DriverChoice::Uring, DriverChoice::Poll]
}

fn in_directory<Fut: Future<Output = ()> + 'static>(body: impl Fn(PathBuf) -> Fut) {
    for driver in drivers() {
        let directory = tempfile::tempdir().unwrap();
        run_one(Config { driver, ..Config::default() }, body(directory.path().to_owned()));
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

const CREATE: OpenOptions = OpenOptions::new().read(true).write(true).create(true);

#[test]
fn what_is_written_is_read_at_any_offset() {
    in_directory(|directory| async move {
        for direct in [false, true] {
            let content = pattern(5 * 4096);
            let file =
                File::open(directory.join("data"), CREATE.truncate(true).direct(direct)).await.unwrap();
            let mut buf = AlignedBuf::zeroed(content.len());
            buf.copy_from_slice(&content);
            let (written, buf) = file.write_at(4096, buf).await;
            written.unwrap();
            assert_eq!(&buf[..], content);
            file.fdatasync().await.unwrap();
            assert_eq!(file.size().await.unwrap(), 6 * 4096);
            assert_eq!(&file.read_at(4096, 8192).await.unwrap()[..], &content[..8192]);
            for (offset, len) in
                [(4096u64, 1usize), (5000, 5000), (4095, 2), (6 * 4096 - 3, 100), (7 * 4096, 10)]
            {
                let read = file.read_range(offset, len).await.unwrap();
                let whole: Vec<u8> = std::iter::repeat_n(0, 4096).chain(content.iter().copied()).collect();
                let begin = (offset as usize).min(whole.len());
                assert_eq!(&read[..], &whole[begin..(begin + len).min(whole.len())], "{offset} {len}");
            }
            file.truncate(4096).await.unwrap();
            assert_eq!(file.size().await.unwrap(), 4096);
            file.fallocate(0, 1 << 20).await.unwrap();
            assert_eq!(file.size().await.unwrap(), 1 << 20);
            file.close().await;
        }
    });
}

#[test]
fn unaligned_direct_writes_are_refused_with_the_buffer() {
    in_directory(|directory| async move {
        let file = File::open(directory.join("data"), CREATE.direct(true)).await.unwrap();
        if !file.is_direct() {
            return; // the file system has no direct I/O
        }
        let (result, buf) = file.write_at(0, AlignedBuf::zeroed(100)).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(buf.len(), 100);
    });
}

#[test]
fn absurd_offsets_and_lengths_are_errors() {
    in_directory(|directory| async move {
        let file = File::open(directory.join("data"), CREATE).await.unwrap();
        for (offset, len) in
            [(u64::MAX, 1), (u64::MAX - 4096, 4096), (1 << 63, 1), (0, usize::MAX), (0, 2 << 30)]
        {
            assert_eq!(file.read_range(offset, len).await.unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(file.read_at(offset, len).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let (result, buf) = file.write_at(u64::MAX - 1, AlignedBuf::zeroed(4096)).await;
        assert_eq!((result.unwrap_err().kind(), buf.len()), (ErrorKind::InvalidInput, 4096));
        assert_eq!(file.read_range(1 << 40, 10).await.unwrap().len(), 0);
    });
}

#[test]
fn names_can_be_made_listed_moved_and_removed() {
    in_directory(|directory| async move {
        let inner = directory.join("a/b");
        file::create_dir_all(&inner).await.unwrap();
        file::create_dir_all(&inner).await.unwrap();
        file::write_all_atomic(inner.join("two"), b"22").await.unwrap();
        file::write_all_atomic(inner.join("one"), b"1").await.unwrap();
        file::write_all_atomic(inner.join("one"), b"111").await.unwrap();
        let names: Vec<_> =
            file::read_dir(&inner).await.unwrap().into_iter().map(|entry| (entry.name, entry.size)).collect();
        assert_eq!(names, [("one".to_owned(), 3), ("two".to_owned(), 2)]);
        assert_eq!(file::read_all(inner.join("one"), 10).await.unwrap(), b"111");
        assert_eq!(file::read_all(inner.join("one"), 2).await.unwrap_err().kind(), ErrorKind::FileTooLarge);
        file::hard_link(inner.join("one"), inner.join("three")).await.unwrap();
        file::rename(inner.join("one"), inner.join("two")).await.unwrap();
        file::sync_dir(&inner).await.unwrap();
        assert!(!file::exists(inner.join("one")).await.unwrap());
        assert_eq!(file::metadata_size(inner.join("two")).await.unwrap(), 3);
        assert!(file::available_space(&directory).await.unwrap() > 0);
        assert!(file::remove_dir(&inner).await.is_err());
        file::remove_file(inner.join("two")).await.unwrap();
        file::remove_dir_all(directory.join("a")).await.unwrap();
        assert_eq!(file::read_dir(&inner).await.unwrap_err().kind(), ErrorKind::NotFound);
        let missing = File::open(directory.join("none"), OpenOptions::new().read(true)).await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

/// Each of these would block, mislead or be harmed if it were taken for a file.
#[test]
fn only_regular_files_are_opened_and_the_error_says_what_is_there() {
    in_directory(|directory| async move {
        let fifo = directory.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        let socket = directory.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let inner = directory.join("folder");
        std::fs::create_dir(&inner).unwrap();
        let link = directory.join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        let read = OpenOptions::new().read(true);
        let written = OpenOptions::new().write(true).create(true).truncate(true);
        for (path, found) in [
            (fifo.clone(), "a FIFO"),
            (link, "a FIFO"),
            (socket, "a socket"),
            (inner, "a directory"),
            (PathBuf::from("/dev/null"), "a character device"),
        ] {
            for options in [read, CREATE, written, read.direct(true), CREATE.direct(true)] {
                let error = File::open(&path, options).await.expect_err("no regular file");
                assert!(error.to_string().contains(found), "{}: {options:?}: {error}", path.display());
            }
            for error in [
                file::read_all(&path, 10).await.unwrap_err(),
                file::lock(&path).await.unwrap_err(),
                file::read_text_now(&path, 10).unwrap_err(),
            ] {
                assert!(error.to_string().contains(found), "{}: {error}", path.display());
            }
        }
        for list in [file::read_dir(&fifo).await.map(drop), file::sync_dir(&fifo).await] {
            assert_eq!(list.unwrap_err().kind(), ErrorKind::NotADirectory);
        }
        assert_eq!(file::metadata_size(&fifo).await.unwrap(), 0, "it was left alone");
    });
}

#[test]
fn a_symbolic_link_is_listed_as_what_it_leads_to() {
    in_directory(|directory| async move {
        let (target, listed) = (directory.join("target"), directory.join("listed"));
        std::fs::create_dir_all(target.join("inner")).unwrap();
        std::fs::create_dir(&listed).unwrap();
        std::fs::write(target.join("file"), pattern(5000)).unwrap();
        for (to, name) in [("inner", "a"), ("file", "b"), ("nothing", "c")] {
            std::os::unix::fs::symlink(target.join(to), listed.join(name)).unwrap();
        }
        let found: Vec<_> = file::read_dir(&listed).await.unwrap();
        let found: Vec<_> = found.iter().map(|e| (e.name.as_str(), e.is_dir)).collect();
        assert_eq!(found, [("a", true), ("b", false), ("c", false)]);
        assert_eq!(file::read_dir(&listed).await.unwrap()[1].size, 5000);
        // Only the link is removed.
        file::remove_dir_all(listed.join("a")).await.unwrap();
        assert!(target.join("inner").is_dir());
    });
}

#[test]
fn a_text_is_read_at_once_up_to_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("text");
    std::fs::write(&path, "twelve bytes").unwrap();
    assert_eq!(file::read_text_now(&path, 12).unwrap(), "twelve bytes");
    assert_eq!(file::read_text_now(&path, 11).unwrap_err().kind(), ErrorKind::FileTooLarge);
    std::fs::write(&path, [0xff]).unwrap();
    assert_eq!(file::read_text_now(&path, 11).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn a_lock_is_held_until_dropped() {
    in_directory(|directory| async move {
        let path = directory.join("lock");
        let held = file::lock(&path).await.unwrap();
        assert_eq!(file::lock(&path).await.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(held);
        // Closing is queued with the shard; an operation later it is done.
        let again = loop {
            match file::lock(&path).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => reactor::yield_now().await,
                other => break other,
            }
        };
        again.unwrap();
    });
}

#[test]
fn a_dropped_read_keeps_its_buffer_until_the_kernel_is_done() {
    in_directory(|directory| async move {
        let file = File::open(directory.join("data"), CREATE).await.unwrap();
        let (result, _) = file.write_at(0, AlignedBuf::zeroed(1 << 20)).await;
        result.unwrap();
        for _ in 0..50 {
            let read = file.read_at(0, 1 << 20);
            let raced = reactor::timeout(reactor::Deadline::at(reactor::now()), read).await;
            drop(raced);
        }
        let group = Group::COMPACTION;
        let other = file.clone();
        let read = spawn(group, async move { other.read_at(0, 4096).await.map(|buf| buf.len()) });
        assert_eq!(read.await.unwrap().unwrap(), 4096);
        assert_eq!(file::disk_usage(group), (1, 4096));
    });
}

#[test]
fn a_file_belongs_to_the_disk_it_lies_on_and_long_transfers_go_in_pieces() {
    let directory = tempfile::tempdir().unwrap();
    let model = reactor::io::DiskModel {
        read_iops: 50_000,
        read_bandwidth: 256 << 20,
        write_iops: 50_000,
        write_bandwidth: 256 << 20,
    };
    for driver in [DriverChoice::Uring, DriverChoice::Poll] {
        let path = directory.path().to_owned();
        let disks = vec![reactor::io::DiskSpec { mountpoint: path.clone(), model }];
        run_one(Config { driver, disks, ..Config::default() }, async move {
            let options = OpenOptions::new().read(true).write(true).create(true).direct(true);
            let file = File::open(path.join("file"), options).await.unwrap();
            let mut buf = AlignedBuf::with_len(1 << 20);
            buf.iter_mut().enumerate().for_each(|(number, byte)| *byte = (number / 4096) as u8);
            let (written, back) = file.write_at(0, buf).await;
            written.unwrap();
            file.fdatasync().await.unwrap();
            let read = file.read_at(0, 1 << 20).await.unwrap();
            assert!(read[..] == back[..]);
            let name = path.display().to_string();
            let counter = |wanted: &str| {
                let samples = reactor::metrics::snapshot();
                let found = samples.iter().find(|sample| {
                    sample.name == wanted && sample.labels.contains(&("mountpoint".to_owned(), name.clone()))
                });
                found.expect("a metric of this disk").value.clone()
            };
            // 64 KiB and 128 KiB are below half a millisecond at 256 MiB/s; 1 MiB takes eight of the latter.
            assert_eq!(counter("scylla_io_queue_total_write_bytes"), Value::Counter(1 << 20));
            assert_eq!(counter("scylla_io_queue_total_write_ops"), Value::Counter(8 + 1));
            assert_eq!(counter("scylla_io_queue_total_read_ops"), Value::Counter(8));
            assert_eq!(reactor::io::model(&name), Some(model));
            assert_eq!(reactor::io::model("default"), None);
        });
    }
}

#[test]
fn a_disk_that_is_not_there_stops_the_start() {
    let model = reactor::io::DiskModel { read_iops: 1, read_bandwidth: 1, write_iops: 1, write_bandwidth: 1 };
    let disks = vec![reactor::io::DiskSpec { mountpoint: "/no/such/place".into(), model }];
    let started = reactor::start(Config { disks, ..Config::default() }, |_| async {});
    let Err(error) = started else { panic!("it started") };
    assert!(error.to_string().starts_with("cannot look at the disk /no/such/place"), "{error}");
}
