//! A command defers work on keys of another slot to the tick; meanwhile it must not trust their old state.

use super::{ask, in_one_write, on_all, words};
use crate::support::{Reply, SOON, wait_until};

/// A removed lock has no holder, so its holder closes no cycle.
#[test]
fn a_deleted_lock_of_another_slot_closes_no_cycle() {
    on_all(
        &["DEL {a}d", "UNLINK {a}d", "RENAME {a}d {a}e"],
        |removal| (*removal).to_owned(),
        |server, removal| {
            ask(server, "DLOCK.ACQUIRE {a}d o1").ok();
            ask(server, "DLOCK.ACQUIRE {b}d o2").ok();
            let mut waiter = server.block(&words("DLOCK.ACQUIRE {a}d o2 BLOCK 0"));
            let mut client = server.client();
            let calls = [(*removal).to_owned(), "DLOCK.ACQUIRE {b}d o1 QUEUE 1000".to_owned()];
            let replies = in_one_write(&mut client, &calls);
            assert!(replies[1].is_null(), "{removal}: {:?}", replies[1]);
            let told = waiter.expect_reply(SOON).error();
            assert!(told.starts_with("MOVING "), "{told}");
            ask(server, "DLOCK.RELEASE {b}d o1");
            ask(server, "DEL {a}d {a}e");
            ask(server, "DEL {b}d");
            drop((waiter, client));
            server.left_over_check();
        },
    );
}

/// Only a flush means that everything is gone; DEBUG RELOAD flushes, too, and loads the same data again.
#[test]
fn a_reload_beside_a_command_announces_no_flush() {
    on_all(
        &["DEBUG RELOAD"],
        |reload| (*reload).to_owned(),
        |server, reload| {
            let mut messages = server.subscribe(&["dlock:notify"]);
            ask(server, "DLOCK.ACQUIRE {a}z o1 PX 60000").ok();
            let mut client = server.client();
            in_one_write(&mut client, &[(*reload).to_owned(), "DLOCK.ACQUIRE {b}z o3".to_owned()]);
            assert_eq!(server.cmd(&["DLOCK.INFO", "{a}z"]).field("owner").text(), "o1");
            messages.assert_none();
            ask(server, "DLOCK.RELEASE {a}z o1");
            ask(server, "DLOCK.RELEASE {b}z o3");
            drop(client);
            server.left_over_check();
        },
    );
}

/// A connection that closed while writes were paused is gone for the first command after the pause.
#[test]
fn the_first_command_after_a_pause_grants_to_no_closed_connection() {
    on_all(
        &["DLOCK"],
        |family| (*family).to_owned(),
        |server, family| {
            let mut holder = server.client();
            holder.cmd(&words(&format!("{family}.ACQUIRE {{a}}p h"))).int();
            let mut queued = server.client();
            let place = format!("{family}.ACQUIRE {{a}}p q QUEUE 60000");
            assert!(queued.cmd(&words(&place)).is_null());
            let mut waiter = server.block(&words(&format!("{family}.ACQUIRE {{a}}p w BLOCK 0")));
            ask(server, "CLIENT PAUSE 30000 WRITE");
            let id = queued.id();
            drop(queued);
            wait_until("the end of the connection", || {
                !ask(server, "CLIENT LIST").text().contains(&format!("id={id} "))
            });
            let call = format!("{family}.RELEASE {{a}}p h");
            holder.send(&words(&call));
            wait_until("the postponed call", || {
                let id = format!("id={} ", holder.id());
                let list = ask(server, "CLIENT LIST").text();
                list.lines().any(|line| line.starts_with(&id) && line.contains(" qbuf="))
                    && server.info_number("clients", "blocked_clients") == 2
            });
            ask(server, "CLIENT UNPAUSE");
            waiter.expect_reply(SOON).int();
            holder.reply(SOON).int();
            ask(server, &format!("{family}.RELEASE {{a}}p w"));
            ask(server, &format!("{family}.RELEASE {{a}}p q"));
            drop((waiter, holder));
            server.left_over_check();
        },
    );
}
