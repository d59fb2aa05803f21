//! Futures side by side in one task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Drives futures side by side in the calling task until each of them is done. They begin in their order, in
/// the first turn; one that is not done when the returned future is dropped is dropped with it.
///
/// Each wake polls all that are left: meant for tens, not for thousands.
///
/// # Errors
/// The place and the error of the first future, in their order, that failed. The others are waited for all
/// the same.
pub async fn side_by_side<F, E>(futures: impl IntoIterator<Item = F>) -> Result<(), (usize, E)>
where
    F: Future<Output = Result<(), E>>,
{
    let mut new = futures.into_iter().enumerate();
    let mut left: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut first: Option<(usize, E)> = None;
    poll_fn(|context| {
        let mut is_left = |at: usize, future: &mut Pin<Box<F>>| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(error)) => {
                if first.as_ref().is_none_or(|(before, _)| at < *before) {
                    first = Some((at, error));
                }
                false
            }
        };
        left.retain_mut(|(at, future)| is_left(*at, future));
        for (at, future) in new.by_ref() {
            let mut future = Box::pin(future);
            if is_left(at, &mut future) {
                left.push((at, future));
            }
        }
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    first.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::side_by_side;
    use crate::driver::sim::World;

    #[test]
    fn futures_wait_side_by_side_and_the_first_in_order_that_failed_is_told() {
        let mut world = World::new(1);
        let node = world.add_node(1, |_| async {
            let ended = RefCell::new(Vec::new());
            let wait = async |at: usize, ms: u64, result: Result<(), &'static str>| {
                crate::sleep(Duration::from_millis(ms)).await;
                ended.borrow_mut().push(at);
                result
            };
            let began = crate::now();
            let each = [(300, Ok(())), (200, Err("second")), (100, Err("third")), (0, Ok(()))];
            let futures = each.into_iter().enumerate().map(|(at, (ms, result))| wait(at, ms, result));
            assert_eq!(side_by_side(futures).await, Err((1, "second")));
            assert_eq!(ended.borrow().as_slice(), [3, 2, 1, 0], "all are waited for");
            let took = began.elapsed();
            assert!(
                took < Duration::from_millis(400),
                "one after the other they would take 600 ms, not {took:?}"
            );
            assert_eq!(side_by_side(std::iter::empty::<std::future::Ready<Result<(), ()>>>()).await, Ok(()));
        });
        world.run().expect("an end");
        assert_eq!(world.outcome(node), Some(Ok(())));
    }
}
