//! Arguments of any command: they are refused, or read as a request that writes the same request again.
//!
//! The first byte chooses the command. A zero byte separates the arguments.
#![no_main]

use dlock_wire::parse;
use dlock_wire::table::COMMANDS;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let command = &COMMANDS[usize::from(choice) % COMMANDS.len()];
    let args: Vec<&[u8]> = rest.split(|&byte| byte == 0).collect();
    match parse(command.id, &args) {
        Ok(request) => {
            let mut written = Vec::new();
            request.write(&mut written);
            let written: Vec<&[u8]> = written.iter().map(Vec::as_slice).collect();
            let again = parse(command.id, &written);
            assert_eq!(
                again.as_ref(),
                Ok(&request),
                "a request that was written is read as another"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
