//! Questions to a probe.

use super::*;

#[tokio::test]
async fn a_question_is_answered_by_a_round_that_began_after_it() {
    let served = Served::plaintext().await;
    assert_eq!(served.streams.confirm_quiet(&node("a")).await, Err(NotConfirmed::NoStream));
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    let ask = || {
        let streams = Arc::clone(&served.streams);
        tokio::spawn(async move { streams.confirm_quiet(&node("a")).await })
    };
    let nonce = async |hand: &mut Hand| match hand.next().await.unwrap().unwrap().kind {
        Some(to_probe::Kind::ConfirmQuiet(ConfirmQuiet { nonce })) => nonce,
        other => panic!("{other:?}"),
    };
    let asked = ask();
    let first = nonce(&mut hand).await;
    // Somebody else's answer is nobody's.
    hand.send(from_probe::Kind::Quiet(QuietAnswer { nonce: first + 1000, round: Some(round(0)) })).await;
    hand.send(from_probe::Kind::Quiet(QuietAnswer { nonce: first, round: Some(round(0)) })).await;
    let reading = asked.await.unwrap().unwrap();
    assert_eq!(reading.gpus.len(), 1);
    assert!(served.readings.hears(&node("a")));

    let asked = ask();
    let second = nonce(&mut hand).await;
    hand.send(from_probe::Kind::Quiet(QuietAnswer { nonce: second, round: None })).await;
    assert_eq!(asked.await.unwrap(), Err(NotConfirmed::Unread));

    let asked = ask();
    let third = nonce(&mut hand).await;
    let lies = Round { at: now(3600), ..round(0) };
    hand.send(from_probe::Kind::Quiet(QuietAnswer { nonce: third, round: Some(lies) })).await;
    assert_eq!(asked.await.unwrap(), Err(NotConfirmed::Rejected(Reason::Future)));

    // The driver hangs: the reading is taken, and says nothing of work.
    let asked = ask();
    let fourth = nonce(&mut hand).await;
    let hung = Driver { state: driver::State::Hung.into(), ..Driver::default() };
    let hangs = Round { driver: Some(hung), gpus: Vec::new(), ..round(0) };
    hand.send(from_probe::Kind::Quiet(QuietAnswer { nonce: fourth, round: Some(hangs) })).await;
    assert_eq!(asked.await.unwrap(), Err(NotConfirmed::Unread));
    assert_eq!(served.readings.latest()[&node("a")].driver, stoker_core::facts::reading::DriverState::Hung);

    // Sampled before the last round: not after the question.
    hand.round(Round { at: now(-20), ..round(1) }).await;
    for (age, expected) in [(-30, Some(NotConfirmed::Rejected(Reason::OutOfOrder))), (-20, None)] {
        let asked = ask();
        let nonce = nonce(&mut hand).await;
        let round = Round { at: now(age), ..round(0) };
        hand.send(from_probe::Kind::Quiet(QuietAnswer { nonce, round: Some(round) })).await;
        assert_eq!(asked.await.unwrap().err(), expected, "{age}");
    }
    assert_eq!(served.rejected(Reason::OutOfOrder), 1);

    let asked = ask();
    nonce(&mut hand).await;
    drop(hand);
    assert_eq!(asked.await.unwrap(), Err(NotConfirmed::Gone));
}

#[tokio::test]
async fn a_question_that_is_not_answered_is_given_up() {
    let served = Served::plaintext().await;
    let (_hand, _) = Hand::speak(&served, "a", 1).await;
    let begun = std::time::Instant::now();
    assert_eq!(served.streams.confirm_quiet(&node("a")).await, Err(NotConfirmed::Late));
    assert!(begun.elapsed() >= Duration::from_secs(5));
}
