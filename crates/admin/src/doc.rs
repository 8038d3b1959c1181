//! Text that many doc comments share.

/// The hidden beginning of an example: a server with the module, its `url`, a `client` of it, and an `admin`.
macro_rules! example {
    () => {
        "# tokio::runtime::Runtime::new().unwrap().block_on(async {
# let server = dlock_testing::Server::start();
# let url = server.url();
# let client = dlock_client::Client::connect(&url).await?;
# let admin = dlock_admin::Admin::new(&client);"
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

/// Of a method without errors of its own.
macro_rules! as_all_calls {
    () => {
        "\n# Errors and cancel safety\n\nAs all calls: see [`Admin`]."
    };
}
