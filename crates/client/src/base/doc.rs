//! Text that many doc comments share.

/// The hidden beginning of an example: a server with the module, its `url`, and a `client` of it.
macro_rules! example {
    () => {
        "# tokio::runtime::Runtime::new().unwrap().block_on(async {
# let server = dlock_testing::Server::start();
# let url = server.url();
# let client = dlock_client::Client::connect(&url).await?;"
    };
}

/// Of a method that sends one request that changes something.
macro_rules! cancel_sent {
    () => {
        "
# Cancel safety

Dropping this future does not recall a request that was sent: the server may carry it out."
    };
}

/// Of a method that sends requests that change nothing.
macro_rules! cancel_read {
    () => {
        "
# Cancel safety

Dropping this future has no effect: the call changes nothing."
    };
}

/// Of a method that does what another one does: its errors, and what dropping its future does.
macro_rules! errors_as {
    ($method:literal) => {
        concat!("\n# Errors\n\nAs ", $method, ".\n\n# Cancel safety\n\nAs ", $method, ".")
    };
}
