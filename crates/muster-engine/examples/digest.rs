#[path = "../tests/it/world.rs"]
#[allow(dead_code)]
mod world;
use muster_generate::*;
use muster_model::*;
fn hash(s: &str) -> u64 { s.bytes().fold(0xcbf29ce484222325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100000001b3)) }
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (mut hd, mut he) = (0u64, 0u64);
    for seed in a[0]..a[1] {
        let sizes = if seed % 50 == 7 { Sizes::medium() } else { Sizes::small() };
        let mut w = cluster(seed, &sizes);
        let mut p = world::policy(seed);
        if seed % 3 == 0 { p.gang_search_budget = Some(1_000_000); p.action_search_budget = Some(10_000_000); }
        let (mut e, _) = muster_engine::Engine::build(w.clone(), p);
        for c in 0..2u32 {
            let d = e.cycle(w.now);
            let x: Vec<_> = w.gangs.iter().map(|g| e.explain(&g.key, w.now)).collect();
            let mut dd = d.clone(); dd.recovered.clear();
            let text = format!("{dd:?}").replace(", recovered: []", "");
            let (a, b) = (hash(&text), hash(&format!("{x:?}")));
            if std::env::var("EACH").is_ok() { println!("{seed} {c} {a:x} {b:x}"); }
            if std::env::var("FULL").is_ok() { println!("{seed} {c} {dd:#?} {x:#?}"); }
            hd = hd.rotate_left(5) ^ a; he = he.rotate_left(5) ^ b;
            let h = consequences(&w, &d);
            apply(&mut w, h.clone()); e.apply(h);
            let more = changes(seed ^ u64::from(c), &w, 3);
            apply(&mut w, more.clone()); e.apply(more);
            w.now = w.now + Span::seconds(30);
        }
    }
    println!("decisions {hd:x} explains {he:x}");
}
