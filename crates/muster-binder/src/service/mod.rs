//! The binder as a service: carries out BindRequests.
//!
//! In: BindRequests, whoever wrote them. Out: bound pods, and on every attempt the request's status: phase, reason,
//! number of failures. `plan` decides when to try and what to write; `run` tries. Must stay true: a request that failed
//! for good is never touched again, nor one that succeeded unless its gang cannot become whole; every failure is counted and written.

pub mod plan;
pub mod round;
pub mod run;

use futures::future::join;
use muster_runtime::Context;

use crate::binder::Binder;
use crate::options::Options;
use run::Whose;

/// Carries out BindRequests and keeps shared GPUs, until cancelled.
pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + use<> {
    // Nobody in this process binds by itself.
    let options = Options { owner: String::new(), ..options };
    let binder = Binder::new(cx.api.named("muster-binder"), options);
    serve(cx, &binder)
}

/// The same beside a scheduler that binds by itself with this binder: its own requests are left to it while it works on
/// them, and what an earlier life of it left behind is carried out.
pub fn serve(cx: &Context, binder: &Binder) -> impl Future<Output = ()> + Send + use<> {
    let requests = run::start(cx, binder, Whose::All);
    let reservations = crate::reservations::start(cx, binder);
    async move {
        join(requests, reservations).await;
    }
}

/// Beside a scheduler that binds by itself where no binder is: what an earlier life of it left behind is carried out, and nothing else.
pub fn serve_own(cx: &Context, binder: &Binder) -> impl Future<Output = ()> + Send + use<> {
    run::start(cx, binder, Whose::Own)
}
