use std::time::{Duration, Instant};
use dlock_client::*;
#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    for wait in [Wait::Queue, Wait::Blocking] {
        let client = Client::builder().wait(wait).connect(&url).await.unwrap();
        let t = Instant::now();
        for _ in 0..10000 { client.lock("u").acquire().await.unwrap().release().await.unwrap(); }
        println!("{wait:?} uncontended {:?}/pair", t.elapsed()/10000);
        let con = redis::Client::open(url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
        let () = redis::cmd("SET").arg("c").arg(0).query_async(&mut con.clone()).await.unwrap();
        let t = Instant::now();
        let mut set = tokio::task::JoinSet::new();
        for _ in 0..n {
            let (client, mut con) = (client.clone(), con.clone());
            set.spawn(async move {
                let lock = client.lock("l");
                for _ in 0..1000 {
                    let g = lock.acquire().await.unwrap();
                    let v: i64 = redis::cmd("GET").arg("c").query_async(&mut con).await.unwrap();
                    let () = redis::cmd("SET").arg("c").arg(v+1).query_async(&mut con).await.unwrap();
                    g.release().await.unwrap();
                }
            });
        }
        while let Some(r) = set.join_next().await { r.unwrap(); }
        let v: i64 = redis::cmd("GET").arg("c").query_async(&mut con.clone()).await.unwrap();
        println!("{wait:?} {v} in {:?} = {:.0}/s", t.elapsed(), v as f64/t.elapsed().as_secs_f64());
        let g = client.lock("t").lease(Duration::from_millis(300)).acquire().await.unwrap();
        println!("{:?} {:?}", g, g.lost().await);
        let g = client.lock("t").acquire().await.unwrap();
        let mut c = con.clone();
        tokio::spawn(async move { tokio::time::sleep(Duration::from_millis(20)).await; let () = redis::cmd("DLOCK.BREAK").arg("t").query_async(&mut c).await.unwrap(); });
        let t = Instant::now();
        println!("{:?} {:?}", g.lost().await, t.elapsed());
        let l = client.lock("t").acquire_timeout(Duration::from_millis(50)).await.unwrap();
        println!("{l:?}");
        let t = Instant::now();
        println!("{:?} {:?}", client.lock("t").acquire_timeout(Duration::from_millis(50)).await.unwrap(), t.elapsed());
    }
}
