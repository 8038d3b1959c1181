//! Completions and manual pages, from the definition of the command line.

use std::fs;
use std::io::{self, Write};

use clap::CommandFactory as _;
use clap_complete::generate;
use clap_mangen::Man as Page;

use crate::args::{Cli, Completions, Man, Shell};
use crate::exit::{Failure, SYSTEM};
use crate::run::Ending;
use crate::text;

/// `dlock completions`
pub fn completions(args: &Completions) -> Result<Ending, Failure> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    // In memory first: the generator cannot report a failure to write.
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "dlock", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Ending::Code(0))
}

/// `dlock man`
pub fn man(args: &Man) -> Result<Ending, Failure> {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let mut pages = vec![("dlock".to_owned(), all.clone())];
    for command in all.get_subcommands() {
        let name = format!("dlock-{}", command.get_name());
        pages.push((name.clone(), command.clone().display_name(name)));
    }
    for (name, command) in pages {
        let file = args.folder.join(format!("{name}.1"));
        let written = page(&name, command).and_then(|page| fs::write(&file, page));
        written.map_err(|error| {
            let file = text::quoted(file.as_os_str().as_encoded_bytes());
            Failure::new(SYSTEM, format!("cannot write {file}: {error}"))
        })?;
    }
    Ok(Ending::Code(0))
}

/// A manual page. The generator writes those sections that it writes well.
fn page(name: &str, mut command: clap::Command) -> io::Result<Vec<u8>> {
    let title = name.to_uppercase();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_subcommands = command.has_subcommands();
    let generated = Page::new(command);
    let mut to = Vec::new();
    // To the left and without hyphens: URLs and options stay whole.
    writeln!(
        to,
        ".TH \"{title}\" 1 \"\" \"dlock {}\" \"User Commands\"\n.ad l\n.nh",
        env!("CARGO_PKG_VERSION")
    )?;
    generated.render_name_section(&mut to)?;
    writeln!(to, ".SH SYNOPSIS\n{}", escape(usage))?;
    generated.render_description_section(&mut to)?;
    generated.render_options_section(&mut to)?;
    if has_subcommands {
        writeln!(to, ".SH COMMANDS")?;
        let mut section = Vec::new();
        generated.render_subcommands_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).into_owned();
        for line in section.lines().filter(|line| !line.starts_with(".SH")) {
            writeln!(to, "{line}")?;
        }
    }
    write_notes(&help, &mut to)?;
    if !has_subcommands {
        writeln!(to, ".SH SEE ALSO\n.BR dlock (1)")?;
    }
    Ok(to)
}

/// The text after the options. Paragraphs are sections; indented lines are not filled.
fn write_notes(help: &str, to: &mut impl Write) -> io::Result<()> {
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let is_about = |word: &str| paragraph.starts_with(word);
        let heading = if is_about("Exit code") {
            "EXIT STATUS"
        } else if is_about("Example") {
            "EXAMPLES"
        } else {
            "NOTES"
        };
        writeln!(to, ".SH {heading}")?;
        let mut is_table = false;
        for line in paragraph.lines() {
            // The heading says it.
            if matches!(line, "Example:" | "Examples:") {
                continue;
            }
            if line.starts_with("  ") != is_table {
                is_table = !is_table;
                writeln!(to, "{}", if is_table { ".PP\n.nf" } else { ".fi\n.PP" })?;
            }
            writeln!(to, "{}", escape(line.trim_start_matches("  ")))?;
        }
        if is_table {
            writeln!(to, ".fi")?;
        }
    }
    Ok(())
}

/// A line of text for roff.
fn escape(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('`', "\\(ga");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_sections_and_tables_keep_their_lines() {
        let mut to = Vec::new();
        let help = "A note.\n\nExit codes:\n  0  fine\n  1  not\n\nExample:\n  x -a 'b\\'";
        write_notes(help, &mut to).unwrap();
        assert_eq!(
            String::from_utf8(to).unwrap(),
            ".SH NOTES\nA note.\n.SH EXIT STATUS\nExit codes:\n.PP\n.nf\n0  fine\n1  not\n.fi\n\
             .SH EXAMPLES\n.PP\n.nf\nx \\-a 'b\\e'\n.fi\n"
        );
        assert_eq!(escape(".x"), "\\&.x");
    }
}
