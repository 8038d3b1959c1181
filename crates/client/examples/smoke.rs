use dlock_client::*;
use std::time::{Duration, Instant};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (url, flavour, mode, n, each) = (
        a[1].clone(),
        a[2].as_str(),
        a[3].clone(),
        a[4].parse::<usize>().unwrap(),
        a[5].parse::<usize>().unwrap(),
    );
    let rt = match flavour {
        "current" => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        _ => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(flavour.parse().unwrap())
            .enable_all()
            .build(),
    }
    .unwrap();
    rt.block_on(async move {
        let wait = if mode == "blocking" { Wait::Blocking } else { Wait::Queue };
        let client = Client::builder().wait(wait).connect(&url).await.unwrap();
        let rc = redis::Client::open(url.as_str()).unwrap();
        let con = rc.get_multiplexed_async_connection().await.unwrap();
        let _: () =
            redis::cmd("DEL").arg("list").arg("c").query_async(&mut con.clone()).await.unwrap();
        let _: () =
            redis::cmd("LPUSH").arg("list").arg("1").query_async(&mut con.clone()).await.unwrap();
        let t = Instant::now();
        let mut set = tokio::task::JoinSet::new();
        for _ in 0..n {
            let (client, mut con, mode) = (client.clone(), con.clone(), mode.clone());
            let mut own = rc
                .get_multiplexed_async_connection_with_config(
                    &redis::AsyncConnectionConfig::new().set_response_timeout(None),
                )
                .await
                .unwrap();
            set.spawn(async move {
                let lock = client.lock("l");
                let mut waits = Vec::new();
                for _ in 0..each {
                    let t = Instant::now();
                    match mode.as_str() {
                        "ping" => {
                            let () = redis::cmd("PING").query_async(&mut con).await.unwrap();
                            waits.push(t.elapsed());
                            let () = redis::cmd("PING").query_async(&mut con).await.unwrap();
                        }
                        "list" => {
                            let () = redis::cmd("BLPOP")
                                .arg("list")
                                .arg(0)
                                .query_async(&mut own)
                                .await
                                .unwrap();
                            waits.push(t.elapsed());
                            work(&mut con).await;
                            let () = redis::cmd("LPUSH")
                                .arg("list")
                                .arg("1")
                                .query_async(&mut own)
                                .await
                                .unwrap();
                        }
                        "bare" => {
                            let g = lock.acquire().await.unwrap();
                            waits.push(t.elapsed());
                            g.release().await.unwrap();
                        }
                        _ => {
                            let g = lock.acquire().await.unwrap();
                            waits.push(t.elapsed());
                            work(&mut con).await;
                            g.release().await.unwrap();
                        }
                    }
                }
                waits
            });
        }
        let mut all = Vec::new();
        while let Some(r) = set.join_next().await {
            all.extend(r.unwrap());
        }
        all.sort();
        let el = t.elapsed();
        println!(
            "{flavour:8} {mode:9} {n} tasks: {:6.0}/s {:6.1} us each; p50 {:?} p99 {:?} max {:?}",
            all.len() as f64 / el.as_secs_f64(),
            el.as_secs_f64() * 1e6 / all.len() as f64,
            all[all.len() / 2],
            all[all.len() * 99 / 100],
            all[all.len() - 1]
        );
        let _ = Duration::ZERO;
    });
}
async fn work(con: &mut redis::aio::MultiplexedConnection) {
    let v: Option<i64> = redis::cmd("GET").arg("c").query_async(con).await.unwrap();
    let () = redis::cmd("SET").arg("c").arg(v.unwrap_or(0) + 1).query_async(con).await.unwrap();
}
