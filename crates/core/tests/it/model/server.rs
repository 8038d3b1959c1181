//! What the server does without a call: time, keys, roles.

use super::{Answer, How, KEYS, Lock, Model, Out};

impl Model {
    pub fn tick(&mut self, open: bool, touched: &[usize]) -> Out {
        self.shut = !open;
        for k in 0..KEYS.len() {
            self.drop_overdue(k);
        }
        if open {
            for queue in &mut self.queues {
                let now = self.lease_now;
                queue.retain(|place| !matches!(place.how, How::Absent { until } if until <= now));
            }
            self.settle(touched, &[0, 1, 2]);
        }
        self.done()
    }

    pub fn unlink(&mut self, k: usize, over: bool, touched: &[usize]) -> Out {
        let new = if over { Lock::Foreign } else { Lock::Free };
        let old = std::mem::replace(&mut self.locks[k], new);
        self.deleted(k, &old);
        self.look_at_queues(touched, &[k]);
        self.done()
    }

    pub fn rename(&mut self, from: usize, to: usize, touched: &[usize]) -> Out {
        let moved = std::mem::replace(&mut self.locks[from], Lock::Free);
        let old = std::mem::replace(&mut self.locks[to], moved);
        self.deleted(to, &old);
        self.look_at_queues(touched, &[to, from]);
        self.done()
    }

    fn deleted(&mut self, k: usize, lock: &Lock) {
        if let Lock::Held(hold) = lock {
            self.say("deleted", k, hold.channel.clone(), hold.token, &hold.owner);
        }
    }

    pub fn fail_over(&mut self) -> Out {
        for queue in std::mem::take(&mut self.queues) {
            for place in queue {
                if let How::Blocked { .. } = place.how {
                    self.out.wakes.push((place.client, Answer::Error("UNBLOCKED")));
                }
            }
            self.queues.push(Vec::new());
        }
        self.hung.clear();
        self.sent.clear();
        let (now, grace) = (self.lease_now, self.settings.grace);
        for lock in &mut self.locks {
            match lock {
                Lock::Free | Lock::Foreign => {}
                Lock::Closed { until, delay } => *until = now + *delay,
                Lock::Held(hold) => {
                    hold.ends = now + hold.unclaimed.map_or(hold.lease, |(_, queue)| queue);
                    hold.unclaimed = hold.unclaimed.map(|(_, queue)| (0, queue));
                    if let Some(tie) = &mut hold.tie {
                        let at_most = now + tie.ms.max(grace);
                        tie.client = 0;
                        tie.at_most = Some(at_most);
                        tie.cut = at_most < hold.ends;
                        hold.ends = hold.ends.min(at_most);
                    }
                }
            }
        }
        self.shut = false;
        self.quarantine_until = self.now + self.settings.quarantine;
        self.done()
    }
}
