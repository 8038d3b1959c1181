//! FENCE: a larger fencing token.

use crate::base::kind::Kind;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::step::holder::{Whose, hold_of};
use crate::tables::Tables;
use alloc::format;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Fence;

/// DLOCK.FENCE and DFAIR.FENCE (`kind`): raises the token of the hold to at least `token`, and
/// of this server with it. The reply is the token of the hold afterwards. `NOTHELD` if the
/// owner does not hold it; `ERR` for a token above [`Tables::token_ceiling`].
pub(crate) fn fence(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &Fence<'_>,
) -> Answer {
    let Fence { key, owner, token } = *call;
    call::on_short_call(tables, turn, kind, key, |step, resource| {
        let whose = Whose { owner, mode: None, token: None };
        let id = match hold_of(step.key, resource, whose) {
            Ok(id) => id,
            Err(fault) => return fault,
        };
        let ceiling = step.tables.token_ceiling(step.now.wall_us);
        if token > ceiling {
            let text = format!("token {token} is too far ahead: at most {ceiling} is taken now");
            return Outcome::fault(ErrorCode::Err, text);
        }
        let raised = resource.change_hold(id, |hold| {
            let from = hold.token;
            hold.token = hold.token.max(token);
            hold.answers = hold.answers.saturating_add(1);
            (from, hold.token)
        });
        let Some((from, to)) = raised else { return Outcome::Null };
        step.tables.raised(step.key, from, to);
        step.tables.tokens.learn(to);
        step.dirty = true;
        Outcome::Token(to)
    })
}
