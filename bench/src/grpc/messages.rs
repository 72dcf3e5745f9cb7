//! The messages of `bench/grpc/products.proto`.

use bytes::Bytes;

use crate::models::load;

/// `bench.Page`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Page {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(int32, tag = "2")]
    pub total: i32,
    #[prost(message, repeated, tag = "3")]
    pub products: Vec<Product>,
}

/// `bench.Product`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Product {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(double, tag = "3")]
    pub price: f64,
    #[prost(int64, tag = "4")]
    pub stock: i64,
    #[prost(bool, tag = "5")]
    pub available: bool,
    #[prost(string, repeated, tag = "6")]
    pub tags: Vec<String>,
    #[prost(message, optional, tag = "7")]
    pub size: Option<Size>,
}

/// `bench.Size`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Size {
    #[prost(float, tag = "1")]
    pub width: f32,
    #[prost(float, tag = "2")]
    pub height: f32,
    #[prost(uint32, tag = "3")]
    pub grams: u32,
}

/// The path of the one method.
pub const PATH: &str = "/bench.Products/Echo";

/// A page of so many products, as the body of a call.
pub fn page(products: usize) -> Bytes {
    let product = |number: usize| Product {
        id: format!("p{number:05}"),
        name: format!("A product with the number {number}"),
        price: 12.5 + number as f64,
        stock: 40 - number as i64,
        available: true,
        tags: vec!["new".into(), "garden".into()],
        size: Some(Size { width: 10.5, height: 0.25, grams: 400 }),
    };
    load::framed(&Page { id: "page-7".into(), total: products as i32, products: (0..products).map(product).collect() })
}
