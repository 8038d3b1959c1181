//! A real terminal for one test: a shell in tmux, with a separate socket.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use dlock_testing::{Server, wait_until};

/// The prompt of the shell.
const PROMPT: &str = "here>";

pub struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// With `dlock` as an alias-free command on the path, and the server's URL in the environment.
    #[track_caller]
    pub fn open(server: &Server) -> Tmux {
        let tmux = Tmux { socket: server.dir().join("tmux") };
        let bin = PathBuf::from(env!("CARGO_BIN_EXE_dlock"));
        let path = format!(
            "{}:{}",
            bin.parent().expect("a folder").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        // If the tests are killed, the shell and tmux end after a while.
        let shell = format!("timeout --foreground 120 env PS1='{PROMPT} ' bash --norc --noprofile");
        let session = tmux
            .command(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", &shell])
            .env("PATH", path)
            .env("DLOCK_URL", server.url())
            .env("HISTFILE", "")
            .status()
            .expect("tmux (`make deps` installs it)");
        assert!(session.success(), "tmux starts");
        tmux.wait_for(PROMPT);
        tmux
    }

    /// Opens a window that runs `dlock` with these arguments, without a shell, and switches to it.
    #[track_caller]
    pub fn window(&self, arguments: &str) {
        // `exec`, because tmux starts it through a shell. tmux ignores these signals, and children inherit that.
        let start = "exec env --default-signal=TTIN,TTOU";
        self.ask(&["set-option", "-g", "remain-on-exit", "on"]);
        self.ask(&[
            "new-window",
            &format!("{start} '{}' {arguments}", env!("CARGO_BIN_EXE_dlock")),
        ]);
    }

    /// Types a line.
    #[track_caller]
    pub fn line(&self, line: &str) {
        self.ask(&["send-keys", "-l", line]);
        self.keys(&["Enter"]);
    }

    /// Presses keys, by their names in tmux: `C-c`, `Down`, `q`.
    #[track_caller]
    pub fn keys(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    /// The text on the screen.
    #[track_caller]
    pub fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// Waits until a command of this name is in the foreground. Input before that may be lost, because the shell
    /// reads in another terminal mode.
    #[track_caller]
    pub fn wait_for_command(&self, name: &str) {
        wait_until(&format!("{name} in the foreground"), || {
            self.variable("pane_current_command") == name
        });
    }

    /// Waits until this is on the screen; returns the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut(&str) -> bool) -> String {
        let mut screen = String::new();
        wait_until(&format!("on the screen: {what}"), || {
            screen = self.screen();
            condition(&screen)
        });
        screen
    }

    #[track_caller]
    pub fn resize(&self, width: u16, height: u16) {
        self.ask(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// A variable of tmux, such as `alternate_on`.
    #[track_caller]
    pub fn variable(&self, name: &str) -> String {
        self.ask(&["display-message", "-p", &format!("#{{{name}}}")]).trim().to_owned()
    }

    #[track_caller]
    fn ask(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("tmux");
        assert!(
            output.status.success(),
            "tmux {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(args).stdin(Stdio::null());
        command
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let screen = self.command(&["capture-pane", "-p"]).output();
            let screen = screen.map(|output| output.stdout).unwrap_or_default();
            eprintln!("the screen:\n{}", String::from_utf8_lossy(&screen));
        }
        let _ = self.command(&["kill-server"]).output();
    }
}
