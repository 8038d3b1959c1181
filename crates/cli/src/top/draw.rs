//! The screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, List, ListState, Paragraph};

use super::lines;
use super::state::{Details, State};
use crate::show::{of_permits, of_waiters, page};

const HELP: &str = "q quit  s sort  up/down select  Enter details";
const HELP_DETAILS: &str = "q quit  Esc back";
/// Lines above and below the list, and a row that one page shares with the next.
const FRAME: u16 = 7;

/// Number of rows that fit on a screen of this height.
pub fn page_of(state: &State, height: u16) -> usize {
    usize::from(height.saturating_sub(FRAME + latency_lines(state)))
}

fn latency_lines(state: &State) -> u16 {
    u16::try_from(lines::latency(&state.servers).len()).unwrap_or(0)
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let head = Constraint::Length(4 + latency_lines(state));
    let [head, body, foot] =
        Layout::vertical([head, Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    draw_head(frame, head, state);
    if state.opened.is_some() {
        draw_details(frame, body, state);
    } else {
        draw_list(frame, body, state);
    }
    draw_foot(frame, foot, state);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let mut head = vec![Line::styled("dlock top", Modifier::BOLD)];
    if state.looked {
        head[0] =
            Line::styled(format!("dlock top: {}", lines::server(&state.servers)), Modifier::BOLD);
        head.push(lines::now(&state.servers).into());
        head.push(lines::rates(state.rates.as_ref()).into());
        head.extend(lines::latency(&state.servers).into_iter().map(Line::from));
    }
    let width = usize::from(area.width);
    let head: Vec<Line<'_>> = head.into_iter().map(|line| fit_line(&line, width)).collect();
    frame.render_widget(Paragraph::new(head), area);
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, state: &State) {
    if state.rows.is_empty() {
        let text = if state.looked { "no locks" } else { "looking …" };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let [heading, list] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let width = usize::from(area.width);
    let mut lines = lines::keys(&state.rows, true).lines_within(width).into_iter();
    let title = lines.next().unwrap_or_default();
    frame.render_widget(Paragraph::new(Line::styled(title, Modifier::REVERSED)), heading);
    let rows: Vec<Line<'_>> = lines
        .zip(&state.rows)
        .map(|(line, row)| {
            let style =
                if row.seen.info.waiters() > 0 { Color::Yellow.into() } else { Style::new() };
            Line::styled(line, style)
        })
        .collect();
    // No colour: under NO_COLOR the highlight would be invisible.
    let widget = List::new(rows).highlight_style(Modifier::REVERSED | Modifier::BOLD);
    let mut at = ListState::default().with_selected(Some(state.selected()));
    frame.render_stateful_widget(widget, list, &mut at);
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(entry) = &state.opened else { return };
    let block = Block::bordered().title(format!(" {} ", crate::text::bytes(&entry.key)));
    let width = usize::from(block.inner(area).width);
    let text = match &state.details {
        None => vec!["looking …".to_owned()],
        Some(details) => of_details(details, width),
    };
    let text: Vec<Line<'_>> = text.into_iter().map(|line| fit_line(&line.into(), width)).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn of_details(details: &Details, width: usize) -> Vec<String> {
    let Some(info) = &details.info else { return vec!["nothing is there any more".to_owned()] };
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = page(&details.entry.key, info, &[], &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if !details.permits.is_empty() {
        lines.push(String::new());
        lines.extend(of_permits(&details.permits).lines_within(width));
    }
    lines.push(String::new());
    if details.waiters.is_empty() {
        lines.push("nobody waits".to_owned());
    } else {
        lines.extend(of_waiters(&details.waiters).lines_within(width));
        let more = info.waiters().saturating_sub(details.waiters.len() as u64);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
    }
    lines
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let line = if let Some(trouble) = &state.trouble {
        Line::styled(trouble.clone(), Color::Red)
    } else if state.opened.is_some() {
        Line::styled(HELP_DETAILS, Modifier::DIM)
    } else {
        let more = lines::more(state).map(|more| format!("  {more}")).unwrap_or_default();
        Line::styled(format!("{HELP}  (sorted by {}){more}", state.sort.name()), Modifier::DIM)
    };
    frame.render_widget(fit_line(&line, usize::from(area.width)), area);
}

/// Shortens a line to `width` and marks the cut.
fn fit_line<'a>(line: &Line<'_>, width: usize) -> Line<'a> {
    let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
    Line::styled(crate::table::fit(&text, width), line.style)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use dlock_admin::WaiterInfo;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::sample::{self, lock};
    use crate::top::state::{Key, Look};

    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(move |x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn the_selected_row_is_seen_without_colours() {
        let mut terminal = Terminal::new(TestBackend::new(90, 9)).unwrap();
        terminal.draw(|frame| draw(frame, &two_looks())).unwrap();
        let is_reversed =
            |y| terminal.backend().buffer()[(0, y)].modifier.contains(Modifier::REVERSED);
        assert_eq!([5, 6].map(is_reversed), [true, false]);
    }

    fn two_looks() -> State {
        let mut state = State::default();
        let now = Instant::now();
        state.update(sample::look(now, vec![lock("door", 1, 2, 0), lock("orders:7", 2, 0, 0)]));
        let later = now + Duration::from_secs(2);
        let mut look = sample::look(later, vec![lock("door", 3, 2, 0), lock("orders:7", 2, 0, 0)]);
        look.servers[0].grants_after_waiting = 5;
        state.update(look);
        state
    }

    #[test]
    fn the_list() {
        assert_eq!(
            screen(&two_looks(), 90, 9),
            [
                "dlock top: Redis 7.0.15 at 127.0.0.1:6379, up 1m01s, 4 clients, 3.0 MiB",
                "2 holds, 0 permits, 0 keys; waiting: 0 blocked, 0 queued, longest queue 0",
                "per second: 0.0 grants at once, 2.5 after waiting, 0.0 releases, 0.0 expiries, 0.0 timeou…",
                "",
                "KEY       KIND   HELD BY   LEFT  WAITERS  GRANTS/S  LABEL",
                "door      dlock  alice    20.0s        2       0.5  night",
                "orders:7  dlock  alice    20.0s        0       0.0  night",
                "",
                "q quit  s sort  up/down select  Enter details  (sorted by waiters)",
            ]
        );
    }

    #[test]
    fn a_narrow_screen_marks_its_cuts() {
        let mut state = State::default();
        let key = "a-key-that-is-quite-long-".repeat(3);
        state.update(sample::look(Instant::now(), vec![lock(&key, 1, 2, 0)]));
        let lines = screen(&state, 60, 8);
        assert!(lines.iter().all(|line| line.chars().count() <= 60));
        assert!(lines[5].contains('…') && lines[5].contains(" 2 "), "{lines:#?}");
        // A screen too small to show anything must not panic.
        for size in [(1, 1), (3, 3), (10, 2), (60, 4)] {
            screen(&state, size.0, size.1);
            screen(&State::default(), size.0, size.1);
        }
    }

    #[test]
    fn the_selected_row_stays_in_sight() {
        let mut state = State::default();
        let locks = (0..50).map(|n| lock(&format!("k{n:02}"), n, 0, 0)).collect();
        state.update(sample::look(Instant::now(), locks));
        state.press(Key::Last, page_of(&state, 12));
        assert!(screen(&state, 80, 12).iter().any(|line| line.starts_with("k49")));
        state.press(Key::PageUp, page_of(&state, 12));
        assert!(screen(&state, 80, 12).iter().any(|line| line.starts_with("k44")));
    }

    #[test]
    fn details_and_trouble() {
        let mut state = two_looks();
        state.press(Key::Enter, 10);
        assert!(screen(&state, 80, 20).iter().any(|line| line.contains("looking …")));
        let seen = lock("door", 3, 2, 0);
        let waiter = WaiterInfo {
            owner: b"bob".to_vec(),
            client: Some(8),
            waiting: Duration::from_millis(1200),
            remaining: None,
            label: Vec::new(),
        };
        let details = Details {
            entry: seen.entry.clone(),
            info: Some(seen.info.clone()),
            waiters: vec![waiter],
            permits: Vec::new(),
        };
        state.update(Look { details: Some(details), ..sample::look(Instant::now(), vec![seen]) });
        state.fail("no connection".to_owned());
        let lines = screen(&state, 80, 20);
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(
            has(" door ") && has("held by    alice") && has("1  bob         8     1.2s"),
            "{lines:#?}"
        );
        assert!(has("and 1 more") && has("no connection"), "{lines:#?}");
    }
}
