//! The folders of a crate are layers: a file uses what is in its own layer and in lower ones. A room is a file or a
//! folder at the top of a layer, and the imports of rooms form no circle.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, files};

struct House {
    /// The folder of the sources.
    source: &'static str,
    /// Top first.
    layers: &'static [&'static str],
    /// Circles that stay: rooms, in alphabetical order.
    circles: &'static [&'static [&'static str]],
    /// Types of a lower layer that a layer does without: the layer, and the type.
    without: &'static [(&'static str, &'static str)],
    /// Types whose methods stand in several layers.
    spread: &'static [&'static str],
}

impl House {
    /// The layer of a module, counted from the top.
    fn level(&self, parts: &[&str]) -> Option<usize> {
        self.layers.iter().position(|layer| Some(layer) == parts.first())
    }
}

const HOUSES: &[House] = &[
    House {
        source: "crates/client/src/",
        layers: &[
            "internal",
            "blocking",
            "handles",
            "acquire",
            "hold",
            "shell",
            "machine",
            "telemetry",
            "base",
        ],
        circles: &[],
        without: &[],
        spread: &[],
    },
    House {
        source: "crates/core/src/",
        layers: &[
            "ops", "events", "deadlock", "run", "step", "view", "tables", "ports", "record",
            "value", "base",
        ],
        // The recursion of the core: what a step frees can be granted to a call for several keys, each of them by a
        // step.
        circles: &[&["run/enter", "run/groups"]],
        // A step is about one key, and the tables do their bookkeeping without looking at keys.
        without: &[
            ("step", "Turn"),
            ("step", "turn"),
            ("view", "Turn"),
            ("tables", "Turn"),
            ("tables", "Store"),
        ],
        spread: &["Tables", "Step", "WaitQueues", "Pending"],
    },
];

/// The file has only tests.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The path of a file as that of a module.
fn module(path: &str) -> Vec<&str> {
    path.strip_suffix(".rs").unwrap_or(path).split('/').collect()
}

/// What the root of a crate exports: the name, and the module that has it.
fn exports(root: &str) -> BTreeMap<&str, Vec<&str>> {
    let uses = root.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let mut found = BTreeMap::new();
    for (path, _) in uses {
        let (module, names) = path.rsplit_once("::").unwrap_or(("", path));
        let module = module.trim_start_matches("self::");
        for name in names.split(|c: char| !c.is_alphanumeric()).filter(|name| !name.is_empty()) {
            found.insert(name, module.split("::").collect());
        }
    }
    found
}

/// A file without its tests.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// Code with each `path::{a, b}` as `path::a path::b`; braces within braces stay.
fn expanded(code: &str) -> String {
    let mut parts = code.split("::{");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let names = part.split_once('}').filter(|(names, _)| !names.contains('{'));
        let Some((names, rest)) = names else {
            all.push_str("::{");
            all.push_str(part);
            continue;
        };
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let path = all.split_off(all.trim_end_matches(is_path).len());
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            all.extend([&path, "::", name, " "]);
        }
        all.push_str(rest);
    }
    all
}

/// What code names by paths, each as the parts of its full path.
fn named<'a>(module: &[&'a str], code: &'a str) -> Vec<Vec<&'a str>> {
    let is_text = |line: &&str| line.starts_with("//") || line.starts_with("#[doc");
    let lines = code.lines().map(str::trim).filter(|line| !is_text(line));
    let is_name = |part: &&str| part.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut found = Vec::new();
    for line in lines {
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
            let mut parts: Vec<&str> = word.split("::").filter(is_name).collect();
            let supers = parts.iter().take_while(|part| **part == "super").count();
            match parts.first() {
                Some(&"crate") => drop(parts.remove(0)),
                // Not in `pub(super)`.
                Some(&"super") if supers < parts.len() && supers <= module.len() => {
                    let above = &module[..module.len() - supers];
                    parts = above.iter().copied().chain(parts.into_iter().skip(supers)).collect();
                }
                _ => continue,
            }
            found.push(parts);
        }
    }
    found
}

/// The methods that code has, each with its type.
fn methods(code: &str) -> Vec<(&str, &str)> {
    let (mut found, mut of) = (Vec::new(), "");
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for line in code.lines() {
        if line.starts_with("impl") || line.starts_with("trait") || line.starts_with("pub trait") {
            let words = line.split(|c| !is_name(c)).filter(|word| !word.is_empty());
            of = words.skip(1).find(|word| word.starts_with(char::is_uppercase)).unwrap_or("_");
        } else if line.starts_with('}') {
            of = "";
        } else if !of.is_empty() && line.starts_with("    ") && !line.starts_with("     ") {
            let after = line.split_once("fn ").map(|(_, after)| after);
            let name = after.and_then(|after| after.split(|c| !is_name(c)).next());
            found.extend(name.map(|name| (of, name)));
        }
    }
    found
}

/// The methods that code calls.
fn called(code: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let parts = lines.flat_map(|line| line.split('.').skip(1));
    parts
        .map(|part| part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len())))
        .filter(|(_, rest)| rest.starts_with('(') || rest.starts_with("::<"))
        .map(|(name, _)| name)
        .collect()
}

/// The layer and the room of a module or an item: its path as far as that.
fn room(parts: &[&str]) -> String {
    parts.iter().take(2).copied().collect::<Vec<_>>().join("/")
}

/// The lowest layer that has a method of a name, for the names that the spread types have.
fn lowest_with_method<'a>(
    house: &House,
    sources: &[(&'a str, &'a File)],
) -> BTreeMap<&'a str, usize> {
    let (mut lowest, mut spread) = (BTreeMap::<&str, usize>::new(), BTreeSet::new());
    for (path, file) in sources {
        let own = house.level(&module(path)).unwrap_or(0);
        for (of, name) in methods(code(&file.text)) {
            let known = lowest.entry(name).or_default();
            *known = own.max(*known);
            if house.spread.contains(&of) {
                spread.insert(name);
            }
        }
    }
    lowest.retain(|name, _| spread.contains(name));
    lowest
}

/// What is wrong with the imports of the files of a house.
fn mistakes(house: &House, files: &[File]) -> Vec<String> {
    let is_source = |(path, file): &(&str, &File)| file.is_rust() && !is_test(path);
    let sources =
        files.iter().filter_map(|file| Some((file.path.strip_prefix(house.source)?, file)));
    let sources: Vec<(&str, &File)> = sources.filter(is_source).collect();
    let rooms: BTreeSet<String> = sources.iter().map(|(path, _)| room(&module(path))).collect();
    let face = sources.iter().find(|(path, _)| *path == "lib.rs");
    let exports = face.map(|(_, file)| exports(&file.text)).unwrap_or_default();
    let level = |parts: &[&str]| house.level(parts);

    let is_top = |first: &&str| rooms.contains(*first) && !house.layers.contains(first);
    let on_top = |parts: &[&str]| parts.first().is_some_and(is_top);

    let lowest = lowest_with_method(house, &sources);
    let mut wrong = Vec::new();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, file) in &sources {
        let (module, code) = (module(path), code(&file.text));
        let Some(own) = level(&module) else {
            if path.contains('/') {
                wrong.push(format!("{path} is in no layer"));
            }
            continue;
        };
        if code.contains("use crate::{") {
            wrong.push(format!("{path}: one `use crate::` for each module"));
        }
        let above = called(code).into_iter();
        let above = above.filter(|name| lowest.get(name).is_some_and(|layer| *layer < own));
        wrong.extend(above.map(|name| format!("{path} calls {name}, a method of a higher layer")));
        let code = expanded(code);
        for parts in named(&module, &code) {
            let parts = parts.first().and_then(|name| exports.get(name)).unwrap_or(&parts);
            let is_missed = |(layer, name): &&(&str, &str)| {
                Some(layer) == module.first() && Some(name) == parts.last()
            };
            wrong.extend(
                house
                    .without
                    .iter()
                    .filter(is_missed)
                    .map(|(layer, name)| format!("{path} uses {name}, which {layer} does without")),
            );
            match level(parts) {
                Some(layer) if layer < own => {
                    wrong
                        .push(format!("{path} uses crate::{} of a higher layer", parts.join("::")));
                }
                Some(_) => {
                    // Items of the file of a layer are in no room.
                    let of_room = rooms.contains(&room(parts));
                    let target = if of_room { room(parts) } else { parts[0].to_owned() };
                    uses.entry(room(&module)).or_default().insert(target);
                }
                None if on_top(parts) => {
                    wrong.push(format!("{path} uses crate::{}, which is on top", parts.join("::")));
                }
                None => {}
            }
        }
    }
    let stays = |circle: &Vec<String>| house.circles.iter().any(|allowed| circle == allowed);
    let circles = circles(&uses).into_iter().filter(|circle| !stays(circle));
    wrong
        .extend(circles.map(|circle| format!("these rooms use each other: {}", circle.join(", "))));
    wrong
}

/// The rooms that a room reaches by imports, itself included.
fn reached<'a>(
    from: &'a String,
    uses: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(room) = open.pop() {
        open.extend(uses.get(room).into_iter().flatten().filter(|next| reached.insert(*next)));
    }
    reached
}

/// The circles of rooms, given which room uses which.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Vec<String>> {
    let circle = |room: &String| -> Vec<String> {
        let comes_back = |other: &&String| reached(other, uses).contains(room);
        reached(room, uses).into_iter().filter(comes_back).cloned().collect()
    };
    uses.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn layers_use_lower_layers_and_rooms_form_no_circle() {
    let files = files();
    for house in HOUSES {
        let wrong = mistakes(house, &files);
        assert!(wrong.is_empty(), "{}:\n{}", house.source, wrong.join("\n"));
    }
}

/// ARCHITECTURE.md has a row for each layer, from the top down, with its rooms.
#[test]
fn the_map_shows_the_folders() {
    let files = files();
    let map = &files.iter().find(|file| file.path == "ARCHITECTURE.md").expect("the map").text;
    for house in HOUSES {
        let mut rest = map.as_str();
        for layer in house.layers {
            let folder = format!("{}{layer}/", house.source);
            let inside = files.iter().filter_map(|file| file.path.strip_prefix(&folder));
            let names = inside.filter_map(|path| path.split('/').next());
            let rooms: BTreeSet<String> = names
                .filter(|name| *name != "tests" && *name != "tests.rs")
                .map(|name| format!("`{}`", name.trim_end_matches(".rs")))
                .collect();
            let rooms: Vec<String> = rooms.into_iter().collect();
            let rooms = if rooms.is_empty() { "one file".to_owned() } else { rooms.join(" ") };
            let row = format!("\n| `{layer}` | {rooms} |");
            let Some((_, after)) = rest.split_once(&row) else {
                panic!(
                    "ARCHITECTURE.md, below the rows of higher layers, has a row that begins: {}",
                    row.trim()
                );
            };
            rest = after;
        }
    }
}

#[test]
fn mistakes_of_imports_are_seen() {
    let file = |path: &str, text: &str| File { path: format!("src/{path}"), text: text.to_owned() };
    let house = House {
        source: "src/",
        layers: &["top", "low"],
        circles: &[&["top/c", "top/d"]],
        without: &[("top", "T")],
        spread: &["S"],
    };
    let wrong = |files: &[File]| mistakes(&house, files);
    let low = "use crate::low::b::{B, C};\n/// `crate::top::a`\n";
    assert_eq!(
        wrong(&[file("low/a.rs", low), file("top/a.rs", "fn a(_: &crate::low::A) {}")]),
        [""; 0]
    );
    assert_eq!(
        wrong(&[file("low/a/x.rs", "use super::super::super::top::a;"), file("b/a.rs", "")]),
        ["low/a/x.rs uses crate::top::a of a higher layer", "b/a.rs is in no layer"]
    );
    let root = file("lib.rs", "\npub use self::top::a::{Lock, Other};\n");
    assert_eq!(
        wrong(&[root, file("low/a.rs", "use crate::Lock;")]),
        ["low/a.rs uses crate::top::a of a higher layer"]
    );
    assert_eq!(
        wrong(&[file("top/a.rs", "use crate::low::b::{S, T};"), file("low/b.rs", "")]),
        ["top/a.rs uses T, which top does without"]
    );
    assert_eq!(
        wrong(&[file("low/b.rs", "use crate::top::{a, b};")]),
        [
            "low/b.rs uses crate::top::a of a higher layer",
            "low/b.rs uses crate::top::b of a higher layer"
        ]
    );
    assert_eq!(
        wrong(&[file("top.rs", ""), file("low/a.rs", "use crate::door::A;"), file("door.rs", "")]),
        ["low/a.rs uses crate::door::A, which is on top"]
    );
    let method = "impl S<'_> {\n    pub fn go(self) {}\n}\n";
    assert_eq!(
        wrong(&[file("top/a.rs", method), file("low/a.rs", "fn f(s: S) {\n    s.go();\n}")]),
        ["low/a.rs calls go, a method of a higher layer"]
    );
    assert_eq!(wrong(&[file("low/a.rs", method), file("top/a.rs", "s.go();")]), [""; 0]);
    let circle = |a, b| {
        let text = |of| format!("use crate::top::{of}::X;");
        wrong(&[file(&format!("top/{a}.rs"), &text(b)), file(&format!("top/{b}/x.rs"), &text(a))])
    };
    assert_eq!(circle("c", "d"), [""; 0]);
    assert_eq!(circle("e", "f"), ["these rooms use each other: top/e, top/f"]);
}
