//! A bare tonic server: it decodes the request and answers with a response of the same form as a model's, without computing
//! one. What is left is what gRPC itself costs.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use super::messages::{InferRequest, InferResponse, InputTensor};

#[derive(Clone)]
struct Echo;

impl UnaryService<InferRequest> for Echo {
    type Response = InferResponse;
    type Future = std::future::Ready<Result<tonic::Response<InferResponse>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<InferRequest>) -> Self::Future {
        let request = request.into_inner();
        let first = request.raw_input_contents.first().map_or(Bytes::new(), |raw| raw.slice(..8.min(raw.len())));
        let output = |name: &str| InputTensor { name: name.into(), datatype: "FP64".into(), shape: vec![1, 1] };
        std::future::ready(Ok(tonic::Response::new(InferResponse {
            model_name: request.model_name,
            model_version: "1".into(),
            outputs: vec![output("output")],
            raw_output_contents: vec![first],
        })))
    }
}

/// Serves until the process ends.
pub fn run(listen: SocketAddr, ready: impl Fn(SocketAddr)) -> io::Result<()> {
    serve(listen, ready, Echo)
}

/// Serves one unary method at any path.
pub fn serve<Q, S>(listen: SocketAddr, ready: impl Fn(SocketAddr), service: S) -> io::Result<()>
where
    Q: prost::Message + Default + 'static,
    S: UnaryService<Q, Response: prost::Message + Default + 'static, Future: Send> + Clone + Send + Sync + 'static,
{
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        ready(listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let service = service.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let service = service.clone();
                async {
                    let mut grpc = Grpc::new(ProstCodec::<S::Response, Q>::default());
                    Ok::<_, Infallible>(grpc.unary(service, request).await)
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    })
}
