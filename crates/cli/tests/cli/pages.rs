//! Completions and manual pages.

use std::fs;
use std::path::Path;
use std::process::Command;

use dlock_testing::Server;

use crate::command::{output, stdout};

/// Runs a program, if this machine has it, and expects no complaint.
fn accepts(program: &str, args: &[&str]) {
    match Command::new(program).args(args).output() {
        Ok(output) => assert!(
            output.status.success() && output.stderr.is_empty(),
            "{program} {args:?}: {output:?}"
        ),
        Err(_) => println!("no {program} here"),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    fs::write(&file, text).expect("a file");
    file.to_str().expect("text").to_owned()
}

#[test]
fn completions_are_scripts_of_their_shells() {
    let server = Server::start();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = stdout(&server, &["completions", shell]);
        assert!(script.contains("max-hold") && script.contains("dlock"), "{script}");
        accepts(shell, &[check, &write(server.dir(), shell, &script)]);
    }
    let none = output(&server, &["completions", "tcsh"]);
    assert!(none.code == 64 && none.stderr.starts_with("dlock: invalid value 'tcsh'"), "{none:?}");
}

#[test]
fn bash_completes_subcommands_and_options() {
    let server = Server::start();
    let script = write(server.dir(), "bash", &stdout(&server, &["completions", "bash"]));
    let complete = |words: &str| {
        let ask = format!(
            "source '{script}'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _dlock dlock \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[*]}}\""
        );
        let output = Command::new("bash").args(["-c", &ask]).output().expect("bash");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(complete("dlock wa"), "waiters watch");
    assert_eq!(complete("dlock run --max"), "--max-hold");
}

#[test]
fn every_subcommand_has_a_page_without_complaints() {
    let server = Server::start();
    let folder = server.dir().join("man");
    fs::create_dir(&folder).expect("a folder");
    let path = folder.to_str().expect("text");
    assert_eq!(stdout(&server, &["man", path]), "");
    let pages: Vec<_> = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .collect();
    assert!(pages.len() > 10, "{pages:?}");
    for page in &pages {
        let page = page.to_str().expect("text");
        let text = fs::read_to_string(page).expect("a page");
        for part in [".TH \"DLOCK", ".SH SYNOPSIS\ndlock", "DLOCK_URL"] {
            assert!(text.contains(part), "{page} has no {part}:\n{text}");
        }
        accepts("man", &["--warnings", "-l", page]);
    }
    let nowhere = output(&server, &["man", "/no/such/folder"]);
    assert_eq!(nowhere.code, 71);
    assert!(nowhere.stderr.starts_with("dlock: cannot write \"/no/such/folder/"), "{nowhere:?}");
}
