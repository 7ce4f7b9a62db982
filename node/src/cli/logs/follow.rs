//! Following logs until they are complete, also when the node goes away in between.

use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, sleep};

use super::{LogsArgs, Stamper, Stream, Wanted, decoded, out, whole};
use crate::{
    cli::{
        Context,
        error::{CliError, Exit},
        session::{self, Session},
        signal::Signals,
    },
    client::{Client, ClientError},
    view::{Job, LogPart},
};

/// Between two looks for a node that is away.
const LOOK: Duration = Duration::from_millis(200);

/// One of the logs and how far it has been printed.
struct Followed<'a> {
    wanted: Wanted<'a>,
    /// Attempt and offset of what is printed, once something is known of it.
    place: Option<(u32, u64)>,
    stamper: Option<Stamper>,
    complete: bool,
}

/// Why following stops for now.
enum Break {
    /// The connection is gone; the log is not at its end.
    Away,
    Failed(CliError),
}

impl From<CliError> for Break {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

impl From<ClientError> for Break {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Broken { .. } | ClientError::Refused { .. } => Self::Away,
            ClientError::Api(view) if view.code == "stopping" => Self::Away,
            error => Self::Failed(error.into()),
        }
    }
}

/// Follows logs until they are complete.
pub(super) async fn run(
    context: &Context,
    args: &LogsArgs,
    session: Session,
    wanted: Vec<Wanted<'_>>,
) -> Result<Exit, CliError> {
    let mut signals = Signals::new().map_err(CliError::internal)?;
    let job = wanted.first().map_or("", |wanted| wanted.job);
    let followed = wanted.into_iter().map(|wanted| Followed {
        wanted,
        place: None,
        stamper: args.timestamps.then(Stamper::default),
        complete: false,
    });
    let mut followed: Vec<_> = followed.collect();
    if args.tail.is_some() {
        for one in &mut followed {
            one.print_tail(context, args, &session).await?;
        }
    }
    let mut client = session.client.clone();
    let done = {
        let mut all = std::pin::pin!(follow(context, args, &mut client, &mut followed));
        tokio::select! {
            done = &mut all => Ok(done?),
            signal = signals.next() => Err(signal),
        }
    };
    match done {
        Ok(()) => Ok(Exit::DONE),
        Err(signal) => {
            // A node that is away says nothing about its jobs.
            if let Ok(job) = client.get::<Job>(&format!("/v1/jobs/{job}")).await
                && !job.state.is_final()
            {
                crate::cli::run::tell_detached(context, &job);
            }
            Err(signal.error())
        }
    }
}

/// Follows all, over as many connections as it takes.
async fn follow(
    context: &Context,
    args: &LogsArgs,
    client: &mut Client,
    followed: &mut [Followed<'_>],
) -> Result<(), CliError> {
    loop {
        let all = followed.iter_mut().filter(|one| !one.complete).map(|one| one.follow(context, args, client));
        match futures::future::try_join_all(all).await {
            Ok(_) => return Ok(()),
            Err(Break::Failed(error)) => return Err(error),
            Err(Break::Away) => *client = back(context, args).await?,
        }
    }
}

/// Waits until the node is there again, at whatever address.
async fn back(context: &Context, args: &LogsArgs) -> Result<Client, CliError> {
    let started = Instant::now();
    let mut told = false;
    loop {
        // A node that breaks the connection at once is not to be asked without a pause.
        sleep(LOOK).await;
        // A node that is stopping or starting answers, if at all, that it does not want to.
        if let Ok(Some(client)) = session::running(context).await {
            return Ok(client);
        }
        if !told {
            let wait = args.wait;
            context.printer.talk(format_args!("the node is away; waiting up to {wait} for it to come back"));
            told = true;
        }
        if started.elapsed() >= args.wait.to_std() {
            let message = format!("the node did not come back within {}", args.wait);
            return Err(CliError::unreachable(message).hint(format!("start it: souk up{}", context.home.flag())));
        }
    }
}

impl Followed<'_> {
    /// Prints the last lines of what there is, and goes on after them.
    async fn print_tail(&mut self, context: &Context, args: &LogsArgs, session: &Session) -> Result<(), CliError> {
        // The attempt is fixed by what is read here.
        let first = session.client.parts(&format!("{}&parts=1", self.wanted.path())).await?.next().await;
        let Some(number) = first.transpose()?.map(|part| part.attempt).filter(|number| *number > 0) else {
            return Ok(());
        };
        let text = whole(session, &Wanted { attempt: Some(number), ..self.wanted.clone() }).await?.tail(args.tail);
        for (at, bytes) in text.parts() {
            let start = text.end().saturating_sub(text.bytes().len() as u64);
            let offset = crate::view::Big(self.place.map_or(start, |(_, place)| place));
            let data = data_encoding::BASE64.encode(bytes);
            self.print(context, args, &LogPart { attempt: number, offset, at, data, end: false })?;
        }
        self.place = Some((number, text.end()));
        Ok(())
    }

    async fn follow(&mut self, context: &Context, args: &LogsArgs, client: &Client) -> Result<(), Break> {
        let place = match (self.place, self.wanted.attempt) {
            (None, _) => String::new(),
            (Some((_, offset)), Some(_)) => format!("&offset={offset}"),
            (Some((number, offset)), None) => format!("&from={number}&offset={offset}"),
        };
        let mut parts = client.parts(&format!("{}&follow=1&parts=1{place}", self.wanted.path())).await?;
        while let Some(part) = parts.next().await {
            let part = part?;
            if part.end {
                self.complete = true;
                return Ok(());
            }
            self.print(context, args, &part)?;
        }
        Err(Break::Away)
    }

    fn print(&mut self, context: &Context, args: &LogsArgs, part: &LogPart) -> Result<(), CliError> {
        let bytes = decoded(part)?;
        let again = self.place.is_some_and(|(number, _)| number != part.attempt);
        self.place = Some((part.attempt, part.offset.0.saturating_add(bytes.len() as u64)));
        let stream: Stream = self.wanted.stream;
        if context.printer.is_structured() {
            let mut line = serde_json::json!({
                "index": self.wanted.index,
                "attempt": part.attempt,
                "stream": stream.word(),
                "offset": part.offset,
                "data": part.data,
            });
            if args.timestamps
                && let Some(line) = line.as_object_mut()
            {
                line.insert("at".to_owned(), serde_json::json!(part.at));
            }
            return context.printer.item(&line);
        }
        if again {
            let rest = self.stamper.as_mut().map_or(&b""[..], |stamper| stamper.restart());
            out(context, args, stream, rest)?;
            let (number, word) = (part.attempt, stream.word());
            context.printer.talk(format_args!("attempt {number} of task {} begins its {word}", self.wanted.index));
        }
        match &mut self.stamper {
            None => out(context, args, stream, &bytes),
            Some(stamper) => out(context, args, stream, &stamper.stamp(part.at, &bytes)),
        }
    }
}
