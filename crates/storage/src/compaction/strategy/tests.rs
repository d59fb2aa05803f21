//! Each strategy over made-up lists of files: its next pick, how much is due, how the output is cut.

use super::*;

const MB: u64 = 1 << 20;
const NOW: u32 = 1_700_000_000;
const ALL: (Token, Token) = (Token(-1000), Token(999));

/// A file of so many megabytes over all tokens; the position in the list is its generation.
fn file(megabytes: u64) -> FileInfo {
    FileInfo {
        generation: 0,
        bytes: megabytes * MB,
        level: 0,
        tokens: ALL,
        timestamps: (1, 1),
        deletion_time_max: NO_LOCAL_TIME,
        droppable: 0.0,
        created: NOW - 100,
        busy: false,
    }
}

impl FileInfo {
    fn at(mut self, first: i64, last: i64) -> Self {
        self.tokens = (Token(first), Token(last));
        self
    }
    fn level(mut self, level: u32) -> Self {
        self.level = level;
        self
    }
    fn written(mut self, first: i64, last: i64) -> Self {
        self.timestamps = (first, last);
        self
    }
    fn over_at(mut self, time: u32) -> Self {
        self.deletion_time_max = time;
        self
    }
    fn droppable(mut self, share: f64, age: u32) -> Self {
        (self.droppable, self.created) = (share, NOW - age);
        self
    }
    fn busy(mut self) -> Self {
        self.busy = true;
        self
    }
}

fn numbered(files: Vec<FileInfo>) -> Vec<FileInfo> {
    let number = |(generation, file)| FileInfo { generation: generation as u64, ..file };
    files.into_iter().enumerate().map(number).collect()
}

fn view(files: &[FileInfo]) -> View<'_> {
    View {
        files,
        tokens: ALL,
        now: NOW,
        gc_before: NOW - 50,
        memory_timestamp_min: i64::MAX,
        flush_bytes: MB,
    }
}

fn chooser(class: &str, options: &[(&str, &str)]) -> Chooser {
    let mut map: BTreeMap<String, String> =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    map.insert("class".to_owned(), format!("org.apache.cassandra.db.compaction.{class}CompactionStrategy"));
    Chooser::new(&map)
}

/// The next pick: sorted inputs, level, cut.
type Picked = Option<(Vec<usize>, u32, Cut)>;

fn picked(plan: Option<Plan>) -> Picked {
    plan.map(|mut plan| {
        plan.inputs.sort();
        (plan.inputs, plan.level, plan.cut)
    })
}

fn check(class: &str, options: &[(&str, &str)], files: Vec<FileInfo>, expected: Picked) {
    let files = numbered(files);
    let mut chooser = chooser(class, options);
    assert_eq!(picked(chooser.next(&view(&files))), expected, "{class} {options:?} {files:#?}");
}

fn whole(inputs: &[usize]) -> Picked {
    Some((inputs.to_vec(), 0, Cut::Whole))
}

fn sizes(megabytes: &[u64]) -> Vec<FileInfo> {
    megabytes.iter().map(|size| file(*size)).collect()
}

#[test]
fn size_tiered_merges_files_of_a_size() {
    let check = |options: &[(&str, &str)], files, expected| check("SizeTiered", options, files, expected);
    check(&[], sizes(&[1, 1, 1]), None);
    // All sizes below 50 MB count as equal.
    check(&[], sizes(&[1, 2, 30, 3]), whole(&[0, 1, 2, 3]));
    check(&[], sizes(&[100, 110, 1000, 90, 120]), whole(&[0, 1, 3, 4]));
    check(&[], sizes(&[100, 400, 1600, 6400]), None);
    check(&[("min_threshold", "2")], sizes(&[100, 110, 900]), whole(&[0, 1]));
    check(&[("max_threshold", "4")], sizes(&[1; 9]), whole(&[0, 1, 2, 3]));
    check(&[("min_sstable_size", "0")], sizes(&[1, 2, 4, 8]), None);
    check(&[("bucket_low", "0.1"), ("bucket_high", "9")], sizes(&[100, 200, 400, 800]), whole(&[0, 1, 2, 3]));
    // The smallest bucket first.
    check(&[], sizes(&[500, 500, 500, 500, 100, 100, 100, 100]), whole(&[4, 5, 6, 7]));
    check(&[], vec![file(1), file(1), file(1).busy(), file(1)], None);
    check(&[("enabled", "x")], vec![], None);
    let files = numbered(sizes(&[1; 40]));
    assert_eq!(chooser("SizeTiered", &[]).pending(&view(&files)), 2);
    let split =
        chooser("SizeTiered", &[]).together(&view(&files), (0..files.len()).collect(), true).expect("a plan");
    assert_eq!((split.inputs.len(), split.cut), (40, Cut::Halves(50 * MB)));
    let backlog = |files: Vec<FileInfo>| chooser("SizeTiered", &[]).backlog(&view(&numbered(files)));
    assert_eq!(backlog(sizes(&[100])), 0.0);
    assert_eq!(backlog(sizes(&[1, 1, 1, 1])), (4 * MB) as f64);
}

#[test]
fn disabled_strategies_owe_nothing() {
    let files = numbered(sizes(&[1; 40]));
    for (class, options) in [("SizeTiered", &[("enabled", "false")][..]), ("Null", &[])] {
        let chooser = chooser(class, options);
        assert!(!chooser.is_enabled());
        assert_eq!((chooser.pending(&view(&files)), chooser.backlog(&view(&files))), (0, 0.0));
    }
    assert!(chooser("SizeTiered", &[("enabled", "TRUE")]).is_enabled());
}

#[test]
fn single_files_are_rewritten_for_their_tombstones() {
    let day = 86_400;
    let check = |options: &[(&str, &str)], files, expected| check("SizeTiered", options, files, expected);
    check(&[], vec![file(1).droppable(0.5, 2 * day)], whole(&[0]));
    check(&[], vec![file(1).droppable(0.2, 2 * day)], None);
    check(&[("tombstone_threshold", "0.1")], vec![file(1).droppable(0.2, 2 * day)], whole(&[0]));
    check(&[], vec![file(1).droppable(0.5, day - 1)], None);
    let hourly = [("tombstone_compaction_interval", "3600")];
    check(&hourly, vec![file(1).droppable(0.5, day - 1)], whole(&[0]));
    // Another file covers all its tokens: nothing could be purged.
    check(&[], vec![file(1).droppable(0.5, 2 * day), file(100)], None);
    let unchecked = [("unchecked_tombstone_compaction", "true")];
    check(&unchecked, vec![file(1).droppable(0.5, 2 * day), file(100)], whole(&[0]));
    // A tenth is covered, in two pieces that overlap.
    let tenth = vec![file(1).droppable(0.5, 2 * day), file(100).at(-100, 0), file(400).at(-50, 99)];
    check(&[], tenth, whole(&[0]));
    // The largest file first. In time windows the smallest, and only if the options ask for it.
    let two = || vec![file(1).at(-9, 0).droppable(0.5, 2 * day), file(9).at(1, 9).droppable(0.5, 2 * day)];
    check(&[], two(), whole(&[1]));
    super::tests::check("TimeWindow", &[], vec![file(1).droppable(0.9, 9 * day)], None);
    super::tests::check(
        "TimeWindow",
        &[("min_threshold", "9"), ("tombstone_threshold", "0.2")],
        two(),
        whole(&[0]),
    );
}

#[test]
fn files_that_expired_go_whole_where_they_shadow_nothing() {
    let check = |files: Vec<FileInfo>, memory: i64, expected: &[usize]| {
        let files = numbered(files);
        let view = View { memory_timestamp_min: memory, ..view(&files) };
        let all: Vec<usize> = (0..files.len()).collect();
        assert_eq!(expired(&view, &all), expected, "{files:#?}");
    };
    let over = || file(1).over_at(NOW - 60);
    check(vec![over().written(1, 5)], i64::MAX, &[0]);
    check(vec![file(1).over_at(NOW - 50)], i64::MAX, &[]);
    check(vec![file(1)], i64::MAX, &[]);
    // A memtable, or a file that stays, has older data.
    check(vec![over().written(1, 5)], 5, &[]);
    check(vec![over().written(1, 5)], 6, &[0]);
    check(vec![over().written(1, 5), file(1).written(3, 9)], i64::MAX, &[]);
    check(vec![over().written(1, 5), file(1).written(6, 9)], i64::MAX, &[0]);
    check(vec![over().written(1, 5).at(0, 5), file(1).written(3, 9).at(6, 9)], i64::MAX, &[0]);
    // A file that is held back holds back the files it overlaps.
    check(
        vec![over().written(2, 6), over().written(4, 7), file(1).written(7, 9), over().written(1, 1)],
        i64::MAX,
        &[3],
    );
    let files = numbered(vec![over(), file(1).written(6, 9)]);
    let mut chooser = chooser("SizeTiered", &[]);
    let plan = chooser.next(&view(&files)).expect("a plan");
    assert_eq!((plan.inputs, plan.reason), (vec![0], Reason::Expired));
    // Not checked again before its time.
    assert_eq!(chooser.next(&view(&files)), None);
    assert!(chooser.next(&View { now: NOW + 601, ..view(&files) }).is_some());
}

#[test]
fn leveled_keeps_levels_at_their_size() {
    let ten = [("sstable_size_in_mb", "10")];
    let check = |files, expected| check("Leveled", &ten, files, expected);
    let cut = Cut::Size(10 * MB);
    check(vec![file(1)], None);
    // Level 0 is merged within itself while it is small, later with the files it overlaps in level 1.
    check(vec![file(1), file(1)], Some((vec![0, 1], 0, Cut::Whole)));
    check(vec![file(8), file(8)], Some((vec![0, 1], 1, cut)));
    let level_1 = |first, last| file(10).level(1).at(first, last);
    check(
        vec![file(8).at(0, 9), file(8).at(5, 15), level_1(-9, -1), level_1(0, 3), level_1(12, 20)],
        Some((vec![0, 1, 3, 4], 1, cut)),
    );
    check(vec![file(8), file(8), level_1(0, 9).busy()], None);
    check(vec![file(8), file(8).busy(), file(1)], None);
    // Level 1 has at most ten files.
    let full = |count: i64| (0..count).map(|n| level_1(n * 10, n * 10 + 9)).collect::<Vec<_>>();
    check(full(10), None);
    let mut over = full(11);
    over.push(file(10).level(2).at(5, 12));
    over.push(file(10).level(2).at(13, 20));
    check(over, Some((vec![0, 11], 2, cut)));
    // A file that overlaps its level counts as level 0.
    check(vec![level_1(0, 9), level_1(5, 12), level_1(13, 20)], None);
    check(vec![level_1(0, 9), level_1(5, 12), file(1).at(5, 5)], Some((vec![0, 1, 2], 1, cut)));
    // Level 0 is far behind: by size first.
    let mut behind = sizes(&[1; 33]);
    behind.extend(full(11));
    check(behind, Some(((0..32).collect(), 0, Cut::Whole)));
}

#[test]
fn leveled_goes_around_and_tells_what_is_due() {
    let ten = [("sstable_size_in_mb", "10"), ("fanout_size", "2")];
    let mut chooser = chooser("Leveled", &ten);
    let files = |from: i64| {
        numbered((from..from + 4).map(|n| file(10).level(1).at(n * 10, n * 10 + 9)).collect::<Vec<_>>())
    };
    let first = files(0);
    assert_eq!(chooser.pending(&view(&first)), 2);
    assert!(chooser.backlog(&view(&first)) > 0.0);
    assert_eq!(picked(chooser.next(&view(&first))), Some((vec![0], 2, Cut::Size(10 * MB))));
    assert_eq!(picked(chooser.next(&view(&first))), Some((vec![1], 2, Cut::Size(10 * MB))));
    assert_eq!(picked(chooser.next(&view(&files(2)))), Some((vec![0], 2, Cut::Size(10 * MB))));
    assert_eq!(picked(chooser.next(&view(&files(-9)))), Some((vec![0], 2, Cut::Size(10 * MB))));
    // All files together go to the lowest level that takes them.
    let plan = chooser.together(&view(&first), vec![0, 1, 2, 3], false).expect("a plan");
    assert_eq!((plan.level, plan.cut), (2, Cut::Size(10 * MB)));
}

#[test]
fn starved_files_of_the_highest_level_are_taken_along() {
    let mut chooser = chooser("Leveled", &[("sstable_size_in_mb", "10"), ("fanout_size", "2")]);
    let mut files: Vec<_> = (0..4).map(|n| file(10).level(1).at(n * 100, n * 100 + 99)).collect();
    files.extend([10, 110, 210, 310].map(|at| file(10).level(4).at(at, at + 5)));
    let files = numbered(files);
    let took = (0..60).filter(|_| {
        let plan = chooser.next(&view(&files)).expect("a plan");
        plan.inputs.iter().any(|index| files[*index].level == 4)
    });
    assert_eq!(took.count(), 60 - 25);
}

#[test]
fn time_windows_are_not_mixed() {
    let hour = 3_600_000_000;
    let at = |hours: i64, megabytes| file(megabytes).written(hours * hour, hours * hour + 1);
    let hours = [("compaction_window_unit", "HOURS"), ("compaction_window_size", "2")];
    let check = |options: &[(&str, &str)], files, expected| check("TimeWindow", options, files, expected);
    check(&hours, vec![at(10, 1), at(11, 1), at(12, 1)], whole(&[0, 1]));
    check(&hours, vec![at(10, 1), at(12, 1), at(14, 1)], None);
    // The newest window is compacted by size, at least four files.
    check(&hours, vec![at(10, 1), at(10, 1), at(10, 1)], None);
    check(&hours, vec![at(10, 1), at(10, 1), at(11, 1), at(11, 9)], whole(&[0, 1, 2, 3]));
    // Of the windows with something due, the newest first.
    check(&hours, vec![at(2, 1), at(2, 1), at(6, 1), at(6, 1), at(10, 1)], whole(&[2, 3]));
    let seconds = [("timestamp_resolution", "SECONDS"), ("compaction_window_unit", "MINUTES")];
    check(
        &seconds,
        vec![file(1).written(60, 70), file(1).written(10, 119), file(1).written(120, 120)],
        whole(&[0, 1]),
    );
    let days = vec![at(0, 1), at(23, 1), at(24, 1)];
    check(&[], days.clone(), whole(&[0, 1]));
    check(
        &[("max_threshold", "2"), ("min_threshold", "2")],
        vec![at(0, 9), at(1, 1), at(2, 2), at(24, 1)],
        whole(&[1, 2]),
    );
    assert_eq!(chooser("TimeWindow", &[]).pending(&view(&numbered(days))), 1);
    // An older window does not become the newest after a later one was seen.
    let mut chooser = chooser("TimeWindow", &hours);
    let later = numbered(vec![at(10, 1), at(20, 1)]);
    assert_eq!(chooser.next(&view(&later)), None);
    let earlier = numbered(vec![at(10, 1), at(10, 1)]);
    assert_eq!(picked(chooser.next(&view(&earlier))), whole(&[0, 1]));
}

#[test]
fn time_windows_look_for_expired_files_as_often_as_told() {
    let mut chooser = chooser("TimeWindow", &[("expired_sstable_check_frequency_seconds", "10")]);
    let files = numbered(vec![file(1).over_at(NOW - 60)]);
    assert!(chooser.next(&view(&files)).is_some());
    assert!(chooser.next(&View { now: NOW + 10, ..view(&files) }).is_none());
    assert!(chooser.next(&View { now: NOW + 11, ..view(&files) }).is_some());
}

#[test]
fn incremental_counts_runs_and_cuts_them_evenly() {
    let hundred = [("sstable_size_in_mb", "100")];
    let check = |options: &[(&str, &str)], files, expected| check("Incremental", options, files, expected);
    check(&hundred, sizes(&[1, 1, 1]), None);
    check(&hundred, sizes(&[1, 1, 1, 1]), Some((vec![0, 1, 2, 3], 0, Cut::Shards(1))));
    check(&hundred, sizes(&[90, 90, 90, 90]), Some((vec![0, 1, 2, 3], 0, Cut::Shards(4))));
    // Two runs of two fragments and two runs of one: four runs of about the same size.
    let runs = vec![file(90).at(-1000, -1), file(90).at(0, 999), file(80).at(-1000, -1), file(80).at(0, 999)];
    check(&hundred, runs.clone(), None);
    let mut four = runs.clone();
    four.extend(sizes(&[150, 170]));
    check(&hundred, four, Some(((0..6).collect(), 0, Cut::Shards(8))));
    // A run with a busy fragment is not touched.
    let mut busy = runs;
    busy.extend([file(150), file(170), file(1).at(-5, -1).busy()]);
    check(&hundred, busy.clone(), Some(((0..6).collect(), 0, Cut::Shards(8))));
    busy[1].busy = true;
    check(&hundred, busy, None);
    let files = numbered(sizes(&[90, 90]));
    let plan = chooser("Incremental", &hundred)
        .together(&view(&files), (0..files.len()).collect(), false)
        .expect("a plan");
    assert_eq!(plan.cut, Cut::Shards(2));
}

#[test]
fn incremental_merges_tiers_beyond_its_goal() {
    let check = |goal: &str, files, expected| {
        check("Incremental", &[("space_amplification_goal", goal)], files, expected);
    };
    let files = || sizes(&[1000, 300, 60]);
    check("1.0", files(), None);
    check("2.1", files(), None);
    check("1.5", files(), None);
    check("1.25", files(), Some((vec![0, 1], 0, Cut::Shards(2))));
    check("1.25", sizes(&[1000]), None);
}

#[test]
fn unified_counts_overlap_by_density() {
    let check = |options: &[(&str, &str)], files, expected| check("Unified", options, files, expected);
    let shards = |inputs: &[usize], shards| Some((inputs.to_vec(), 0, Cut::Shards(shards)));
    // T4 is the default.
    check(&[], sizes(&[1, 1, 1]), None);
    check(&[], sizes(&[1, 1, 1, 1]), shards(&[0, 1, 2, 3], 1));
    check(&[("scaling_parameters", "L4")], sizes(&[1, 1]), shards(&[0, 1], 1));
    check(&[("scaling_parameters", "N")], sizes(&[1]), None);
    check(&[("scaling_parameters", "N")], sizes(&[1, 1]), shards(&[0, 1], 1));
    check(&[("scaling_parameters", "T3, N")], sizes(&[1, 1, 1]), shards(&[0, 1, 2], 1));
    // Density counts, not size: a quarter of the tokens with 1 MB is as dense as all with 4.
    let quarter = || file(1).at(-1000, -501);
    check(&[], vec![quarter(), quarter(), quarter(), file(4)], shards(&[0, 1, 2, 3], 1));
    check(&[], vec![file(1), file(1), file(1), file(9)], None);
    // The place with most overlapping files comes first; the option includes neighbours.
    let chain = || vec![file(2).at(-1000, 0), file(1).at(-5, 500), file(1).at(400, 999), file(1).at(-1, 900)];
    let three = |inclusion| [("scaling_parameters", "T3"), ("overlap_inclusion_method", inclusion)];
    check(&three("none"), chain(), shards(&[0, 1, 3], 1));
    check(&three("transitive"), chain(), shards(&[0, 1, 2, 3], 1));
    // Oldest first if there are more files than one merge takes.
    let many: Vec<FileInfo> = (0..6).map(|n| file(1).written(0, 9 - n)).collect();
    check(&[("max_sstables_to_compact", "4")], many, shards(&[2, 3, 4, 5], 1));
    let far: Vec<FileInfo> = sizes(&[1; 40]);
    check(&[], far, shards(&(0..16).collect::<Vec<_>>(), 1));
    let files = numbered(sizes(&[1; 9]));
    assert_eq!(chooser("Unified", &[]).pending(&view(&files)), 2);
    assert!(chooser("Unified", &[]).backlog(&view(&numbered(sizes(&[1, 1, 1, 100])))) > 0.0);
}

#[test]
fn unified_cuts_by_density() {
    let cut = |options: &[(&str, &str)], megabytes: u64| {
        let files = numbered(sizes(&[megabytes]));
        chooser("Unified", options).alone(&view(&files), 0)
    };
    let fixed = [("sstable_growth", "1"), ("base_shard_count", "6")];
    let even = [("sstable_growth", "0"), ("target_sstable_size", "100MiB")];
    for (options, megabytes, expected) in [
        // Below the least size: as few parts as divide the base.
        (&[][..], 50, 1),
        (&[], 250, 2),
        (&[("base_shard_count", "6")], 500, 2),
        (&[], 400, 4),
        // The number grows with the third root.
        (&[], 4 << 10, 4),
        (&[], 16 << 10, 8),
        (&[], 64 << 10, 32),
        (&fixed, 1 << 20, 6),
        (&even, 400, 4),
        (&even, 1600, 16),
        (&[("min_sstable_size", "0B")], 1, 4),
    ] {
        assert_eq!(cut(options, megabytes), Cut::Shards(expected), "{options:?} {megabytes}");
    }
}
