//! rdkafka, librdkafka's binding for Rust. It writes and reads with a login, and lacks all other operations.
//! The lines of JSON are described in tests/clients/python/serving.py.

use std::error::Error;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::prelude::{Engine, BASE64_STANDARD};
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

const WAIT: Duration = Duration::from_secs(60);
const TOKEN_MS: i64 = 3_000_000;
const DIGEST_FROM: usize = 1000;
const STRINGS: [(&str, &[&str]); 7] = [
    ("bootstrap", &["bootstrap.servers"]),
    ("protocol", &["security.protocol"]),
    ("trusted", &["ssl.ca.location"]),
    ("identity", &["ssl.key.location", "ssl.certificate.location"]),
    ("mechanism", &["sasl.mechanism"]),
    ("username", &["sasl.username"]),
    ("password", &["sasl.password"]),
];

type Answer = Result<Value, Box<dyn Error>>;

#[derive(Clone, Default)]
struct Login {
    token: Option<String>,                          // path
    refusal: Arc<Mutex<Option<String>>>,            // the client repeats a refused login without end
    delivered: Arc<Mutex<Vec<Result<i64, String>>>>, // offsets
}

impl Login {
    fn check(&self) -> Result<(), Box<dyn Error>> {
        match self.refusal.lock().unwrap().clone() {
            Some(reason) => Err(reason.into()),
            None => Ok(()),
        }
    }
}

impl ClientContext for Login {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let is_login = matches!(code, Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL));
        if is_login || reason.contains("SSL alert") {
            self.refusal.lock().unwrap().get_or_insert(format!("{error}: {reason}"));
        }
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let path = self.token.as_ref().ok_or("there is no token")?;
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        let token = std::fs::read_to_string(path)?;
        Ok(OAuthToken { token, principal_name: "client".into(), lifetime_ms: now_ms + TOKEN_MS })
    }
}

impl ConsumerContext for Login {}

impl ProducerContext for Login {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let outcome = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.to_string()),
        };
        self.delivered.lock().unwrap().push(outcome);
    }
}

fn client<T: FromClientConfigAndContext<Login>>(login: &Value, more: &[(&str, &str)]) -> Result<(T, Login), KafkaError> {
    let mut config = ClientConfig::new();
    for (field, names) in STRINGS {
        for name in names.iter().filter(|_| login[field].is_string()) {
            config.set(*name, login[field].as_str().unwrap());
        }
    }
    for (name, value) in more {
        config.set(*name, *value);
    }
    let context = Login { token: login["token"].as_str().map(String::from), ..Login::default() };
    Ok((config.create_with_context(context.clone())?, context))
}

fn produce(request: &Value) -> Answer {
    let codec = request["codec"].as_str().ok_or("codec")?;
    let (producer, login): (BaseProducer<Login>, Login) = client(&request["login"], &[("compression.type", codec)])?;
    let records = request["records"].as_array().ok_or("records")?;
    for record in records {
        let (key, value) = (raw(&record[1])?.unwrap_or_default(), raw(&record[2])?.unwrap_or_default());
        let entry = BaseRecord::<[u8], [u8]>::to(request["topic"].as_str().ok_or("topic")?)
            .partition(record[0].as_i64().ok_or("partition")? as i32)
            .timestamp(record[4].as_i64().ok_or("timestamp")?)
            .key(&key)
            .payload(&value);
        producer.send(entry).map_err(|(error, _)| error)?;
    }
    let began = Instant::now();
    while login.delivered.lock().unwrap().len() < records.len() {
        producer.poll(Duration::from_millis(100));
        login.check()?;
        if began.elapsed() > WAIT {
            return Err("no acknowledgement".into());
        }
    }
    let delivered = login.delivered.lock().unwrap().clone();
    Ok(json!(delivered.into_iter().collect::<Result<Vec<i64>, String>>()?))
}

fn consume(request: &Value) -> Answer {
    let more = [("group.id", "none"), ("enable.auto.commit", "false")];
    let (consumer, login): (BaseConsumer<Login>, Login) = client(&request["login"], &more)?;
    let (mut starts, mut count) = (TopicPartitionList::new(), 0);
    for start in request["starts"].as_array().ok_or("starts")? {
        let offset = Offset::Offset(start[1].as_i64().ok_or("offset")?);
        let partition = start[0].as_i64().ok_or("partition")? as i32;
        starts.add_partition_offset(request["topic"].as_str().ok_or("topic")?, partition, offset)?;
        count += start[2].as_u64().ok_or("count")? as usize;
    }
    consumer.assign(&starts)?;
    let (mut rows, began) = (Vec::new(), Instant::now());
    while rows.len() < count && began.elapsed() < WAIT {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message?;
            let time = message.timestamp().to_millis();
            let (key, value) = (shown(message.key())?, shown(message.payload())?);
            rows.push(json!([message.partition(), message.offset(), time, key, value, []]));
        }
        login.check()?;
    }
    Ok(json!(rows))
}

fn raw(text: &Value) -> Result<Option<Vec<u8>>, base64::DecodeError> {
    text.as_str().map(|text| BASE64_STANDARD.decode(text)).transpose()
}

fn shown(data: Option<&[u8]>) -> Result<Option<String>, &'static str> {
    match data {
        Some(data) if data.len() > DIGEST_FROM => Err("lacking: digests"),
        data => Ok(data.map(|data| BASE64_STANDARD.encode(data))),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = match (request["op"].as_str(), request["login"].is_object()) {
            (Some("produce"), true) => produce(&request),
            (Some("consume"), true) => consume(&request),
            _ => Err("lacking".into()),
        };
        match answer {
            Ok(result) => println!("{}", json!({ "result": result })),
            Err(error) => println!("{}", json!({ "error": error.to_string() })),
        }
    }
    Ok(())
}
