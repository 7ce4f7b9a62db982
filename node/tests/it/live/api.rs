//! The API as strangers find it: raw requests over a socket.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use super::lab::{Lab, Node, text};

/// Sends bytes to the node's API and returns the status and the body of the answer.
fn ask(node: &Node, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address(node)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // A node may answer, and close, before it has read a body it does not want.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {answer:?}")).parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn address(node: &Node) -> String {
    let config = node.home.read("config/souk.toml");
    config.split("[api]").nth(1).unwrap().split('"').nth(1).unwrap().to_owned()
}

/// A request with this host, token and body.
fn request(line: &str, host: &str, token: Option<&str>, body: &[u8]) -> Vec<u8> {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: {host}\r\n{token}content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn the_api_lets_in_nobody_without_the_token_and_nothing_malformed() {
    let lab = Lab::new(1);
    let node = &lab.renter;
    let (host, token) = (address(node), node.home.read("data/token"));
    let token = token.trim();
    let get = |host: &str, token| ask(node, &request("GET /v1/status", host, token, b""));

    assert_eq!(get(&host, Some(token)).0, 200);
    let (status, body) = get(&host, None);
    assert_eq!(status, 401, "{body}");
    let said: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(text(&said["error"]["message"]).contains("token"), "{said}");
    assert_eq!(get(&host, Some("wrong")).0, 401);
    assert_eq!(get("evil.example:80", Some(token)).0, 403);
    assert_eq!(ask(node, &request("GET /v1/jobs/zzzzzzzz", &host, Some(token), b"")).0, 404);

    let post = |body: &[u8]| ask(node, &request("POST /v1/jobs", &host, Some(token), body));
    assert_eq!(post(b"{\"spec\":").0, 400);
    assert_eq!(post(&vec![b' '; 32 << 20]).0, 413);
    assert_eq!(ask(node, &request("POST /v1/jobs", &host, None, b"{}")).0, 401);
    assert_eq!(ask(node, b"\x00\x01garbage\r\n\r\n").0, 400);
    assert_eq!(get(&host, Some(token)).0, 200, "the node lives");
}
