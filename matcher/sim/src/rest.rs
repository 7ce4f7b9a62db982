//! What is looked at when a run is over.

use souk_matcher::Event;
use souk_protocol::{Hash, NodeId};

use crate::{
    invariant::{Fault, Invariant},
    network::NodeIndex,
    report::Report,
    scenario::Engine,
    world::World,
};

impl World<'_> {
    pub(crate) fn finish(mut self) -> Report {
        let now = self.now;
        // After a violation the rest tells nothing.
        if self.ledger.violations().is_empty() {
            // Where many nodes come and go, the end of the time given need not find all of them at rest.
            let is_at_rest = self.rest_since.is_some() || self.scenario.engine == Engine::Exact;
            self.ledger.at_rest(now, is_at_rest);
            self.compare_books();
            for index in 0..self.nodes.len() {
                let keeps =
                    self.scenario.engine == Engine::Exact || self.nodes.get(index).is_some_and(|node| node.keeps);
                if keeps {
                    self.replay(index);
                }
            }
        }
        self.report.connections = self.network.connections_made();
        self.report.outcome = self.outcome();
        self.report.finish(now, &self.ledger, Hash(*self.log.finalize().as_bytes()));
        self.report
    }

    /// The books of the rules say what the journals say.
    fn compare_books(&mut self) {
        for ((renter, provider), (spent, earned)) in self.ledger.vouchered() {
            let books = |id: &NodeId| {
                let node = self.index(id).and_then(|index| self.nodes.get(index));
                // A crook may still be writing when all others are at rest.
                let node = node.filter(|node| node.disk.pending() == 0);
                node.and_then(|node| node.alive.as_ref()).map(|alive| &alive.trader.books)
            };
            let says_spent = books(&renter).map(|books| books.spent(&provider));
            let says_earned = books(&provider).map(|books| books.earned(&renter));
            let holds = says_spent.is_none_or(|sum| sum == spent) && says_earned.is_none_or(|sum| sum == earned);
            let outcome = if holds {
                Ok(())
            } else {
                let detail = format!(
                    "{renter:?} spent {spent}, its books say {says_spent:?}; {provider:?} earned {earned}, its books say {says_earned:?}"
                );
                Err(Fault { invariant: Invariant::BooksAgree, detail })
            };
            self.ledger.check(self.now, outcome);
        }
    }

    /// The journal of a node that is at rest gives the books that the node has.
    fn replay(&mut self, index: NodeIndex) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        let Some(alive) = node.alive.take() else { return };
        let outcome = node.start(self.now, self.scenario, &mut self.dice);
        let (policy, clocks) = (Box::new(node.told_policy(self.scenario.broken)), node.clocks(self.now));
        if let Some(fresh) = &mut node.alive {
            fresh.trader.handle(Event::Policy(policy), clocks);
        }
        let same = node.alive.as_ref().is_some_and(|fresh| fresh.trader.books == alive.trader.books);
        let wrong = |detail: String| Err(Fault { invariant: Invariant::ReplayFollows, detail });
        let outcome = match outcome {
            Err(error) => wrong(format!("node {index}: {error}")),
            Ok(()) if node.disk.pending() == 0 && !same => {
                wrong(format!("node {index}: the journal gives other books"))
            }
            Ok(()) => Ok(()),
        };
        self.ledger.check(self.now, outcome);
    }
}
