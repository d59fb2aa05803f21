//! `snapshot`, `listsnapshots`, `clearsnapshot`.

use serde_json::Value;

use super::CtlError;
use super::http::{Api, escaped};
use super::text::{Table, print, size};
use super::verbs::SnapshotOptions;

/// Seconds of `12h` and the like: s, m, h, d.
fn seconds(text: &str) -> Result<u64, CtlError> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 0,
    };
    let found = text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    found.filter(|seconds| *seconds > 0).ok_or_else(|| {
        CtlError::Usage(format!("Invalid duration: {text}; expected one such as 30m, 12h or 7d"))
    })
}

pub(super) async fn take(api: &Api, options: SnapshotOptions) -> Result<(), CtlError> {
    let tag = options.tag.unwrap_or_else(|| (reactor::wall_clock_us() / 1000).to_string());
    let ttl = options.ttl.as_deref().map(seconds).transpose()?;
    let mut settings = format!("skipFlush={}", options.skip_flush);
    if let Some(ttl) = &options.ttl {
        settings.push_str(&format!(", ttl={ttl}"));
    }
    // Keyspaces and their tables, one request each; all keyspaces are one.
    let mut wanted: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    let subject;
    if let Some(list) = options.kt_list.as_deref().map(|list| list.replace(' ', "")) {
        if !options.keyspaces.is_empty() || options.table.is_some() {
            return Err(CtlError::Usage(
                "When specifying the Keyspace table list (using -kt,--kt-list,-kc,--kc.list), you must not also specify keyspaces to snapshot".to_owned(),
            ));
        }
        for name in list.split(',') {
            let (keyspace, table) = name
                .split_once('.')
                .ok_or_else(|| CtlError::Usage(format!("expected keyspace.table, found {name}")))?;
            match wanted.iter_mut().find(|(keyspaces, _)| keyspaces[0] == keyspace) {
                Some((_, tables)) => tables.push(table.to_owned()),
                None => wanted.push((vec![keyspace.to_owned()], vec![table.to_owned()])),
            }
        }
        subject = list;
    } else {
        if options.table.is_some() && options.keyspaces.len() != 1 {
            return Err(CtlError::Usage(
                "When specifying the table for a snapshot, you must specify one and only one keyspace"
                    .to_owned(),
            ));
        }
        subject = if options.keyspaces.is_empty() {
            "all keyspaces".to_owned()
        } else {
            options.keyspaces.join(", ")
        };
        wanted.push((options.keyspaces, options.table.into_iter().collect()));
    }
    print(&format!(
        "Requested creating snapshot(s) for [{subject}] with snapshot name [{tag}] and options {{{settings}}}\n"
    ));
    for (keyspaces, tables) in wanted {
        let mut path = format!("/storage_service/snapshots?tag={}&sf={}", escaped(&tag), options.skip_flush);
        let list = |names: &[String]| names.iter().map(|name| escaped(name)).collect::<Vec<_>>().join(",");
        if !keyspaces.is_empty() {
            path.push_str(&format!("&kn={}", list(&keyspaces)));
        }
        if !tables.is_empty() {
            path.push_str(&format!("&cf={}", list(&tables)));
        }
        if let Some(ttl) = ttl {
            path.push_str(&format!("&ttl={ttl}"));
        }
        api.post(&path).await?;
    }
    print(&format!("Snapshot directory: {tag}\n"));
    Ok(())
}

pub(super) async fn list(api: &Api, no_ttl: bool) -> Result<(), CtlError> {
    let mut table = Table::new(" ");
    table.row([
        "Snapshot name",
        "Keyspace name",
        "Column family name",
        "True size",
        "Size on disk",
        "Creation time",
        "Expiration time",
    ]);
    let (mut any, mut true_size) = (false, 0);
    for (tag, parts) in api.pairs("/storage_service/snapshots").await? {
        for part in parts.as_array().into_iter().flatten() {
            let text = |name: &str| part.get(name).and_then(Value::as_str).unwrap_or_default();
            let number = |name: &str| part.get(name).and_then(Value::as_u64).unwrap_or(0);
            if no_ttl && !text("expires_at").is_empty() {
                continue;
            }
            any = true;
            true_size += number("live");
            let (live, total) = (size(number("live")), size(number("total")));
            let made = (text("created_at"), text("expires_at"));
            table.row([tag.as_str(), text("ks"), text("cf"), &live, &total, made.0, made.1]);
        }
    }
    print("Snapshot Details: \n");
    if !any {
        print("There are no snapshots\n");
        return Ok(());
    }
    print(&format!("{}\nTotal TrueDiskSpaceUsed: {}\n\n", table.print(), size(true_size)));
    Ok(())
}

pub(super) async fn clear(
    api: &Api,
    tag: Option<String>,
    all: bool,
    keyspaces: &[String],
) -> Result<(), CtlError> {
    match (&tag, all) {
        (None, false) => return Err(CtlError::Usage("Specify snapshot name or --all".to_owned())),
        (Some(_), true) => {
            return Err(CtlError::Usage("Specify only one of snapshot name or --all".to_owned()));
        }
        _ => {}
    }
    let names: Vec<String> = keyspaces.iter().map(|keyspace| escaped(keyspace)).collect();
    let mut parameters = Vec::new();
    parameters.extend(tag.as_ref().map(|tag| format!("tag={}", escaped(tag))));
    if !names.is_empty() {
        parameters.push(format!("kn={}", names.join(",")));
    }
    let subject = if keyspaces.is_empty() { "all keyspaces".to_owned() } else { keyspaces.join(", ") };
    let which = tag.map_or_else(|| "all snapshots".to_owned(), |tag| format!("snapshot name [{tag}]"));
    api.delete(&format!("/storage_service/snapshots?{}", parameters.join("&"))).await?;
    print(&format!("Requested clearing snapshot(s) for [{subject}] with [{which}]\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, expected) in [("30m", 1800), ("12h", 43_200), ("7d", 604_800), ("5s", 5)] {
            assert_eq!(seconds(text).unwrap(), expected);
        }
        for text in ["", "h", "5", "0s", "5 h", "-1h", "99999999999999999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
