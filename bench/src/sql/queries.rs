//! The three queries, written by hand on `tokio-postgres`: what both servers of this benchmark that are not Fanin do.

use serde::Serialize;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, NoTls, Row, Statement};

/// A connection with its statements prepared.
pub struct Database {
    client: Client,
    customer: Statement,
    orders: Statement,
    items: Statement,
}

/// What a request is answered with, but for numbers with digits after the point and times, which the database writes.
#[derive(Debug, Serialize)]
pub struct Answer {
    customer: Customer,
    orders: Vec<Order>,
    items: Vec<Item>,
}

#[derive(Debug, Serialize)]
struct Customer {
    id: i32,
    name: String,
    city: String,
}

#[derive(Debug, Serialize)]
struct Order {
    id: i32,
    placed: String,
    total: String,
}

#[derive(Debug, Serialize)]
struct Item {
    order_id: i32,
    product: String,
    quantity: i32,
    price: String,
}

impl Database {
    /// Connects and prepares. `slow`: the tables without indexes, about 30 ms a query.
    pub async fn connect(url: &str, slow: bool) -> Result<Database, Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let (tables, sleep) = if slow { ("", "pg_sleep(0.027), ") } else { ("quick_", "") };
        let customer = format!("select c.id, c.name, c.city from {sleep}{tables}customers c where c.email = $1");
        let orders = format!(
            "select o.id, o.placed::text, o.total::text from {sleep}{tables}orders o where o.customer_id = $1 \
             order by o.placed desc, o.id desc limit 5"
        );
        let items = format!(
            "select i.order_id, i.product, i.quantity, i.price::text from {sleep}{tables}items i where i.order_id = any($1) \
             order by i.order_id, i.product"
        );
        Ok(Database {
            customer: client.prepare(&customer).await?,
            orders: client.prepare(&orders).await?,
            items: client.prepare(&items).await?,
            client,
        })
    }

    /// The first query: the customer's row, whose id the second needs.
    pub async fn customer(&self, email: &str) -> Result<Row, Error> {
        self.client.query_one(&self.customer, &[&email]).await
    }

    /// The second.
    pub async fn orders(&self, customer: i32) -> Result<Vec<Row>, Error> {
        self.client.query(&self.orders, &[&customer]).await
    }

    /// The third.
    pub async fn items(&self, orders: &[i32]) -> Result<Vec<Row>, Error> {
        let parameter: &(dyn ToSql + Sync) = &orders;
        self.client.query(&self.items, &[parameter]).await
    }
}

/// The ids that the third query needs.
pub fn ids(orders: &[Row]) -> Vec<i32> {
    orders.iter().map(|row| row.get(0)).collect()
}

/// The whole answer as JSON.
pub fn json(customer: &Row, orders: &[Row], items: &[Row]) -> Vec<u8> {
    let answer = Answer {
        customer: Customer { id: customer.get(0), name: customer.get(1), city: customer.get(2) },
        orders: orders.iter().map(|row| Order { id: row.get(0), placed: row.get(1), total: row.get(2) }).collect(),
        items: items
            .iter()
            .map(|row| Item { order_id: row.get(0), product: row.get(1), quantity: row.get(2), price: row.get(3) })
            .collect(),
    };
    // Strings and numbers can always be written.
    serde_json::to_vec(&answer).unwrap_or_default()
}
