//! Requests and notifications, one after another. Folders are checked when no message waits.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

use lsp_server::{ErrorCode, Message, Notification, Request, Response};
use lsp_types::{
    CompletionOptions, CompletionParams, DidChangeTextDocumentParams, DidCloseTextDocumentParams,
    DidOpenTextDocumentParams, DocumentFormattingParams, GotoDefinitionParams, HoverParams, HoverProviderCapability,
    InitializeResult, LogMessageParams, MessageType, OneOf, PublishDiagnosticsParams, RenameParams, ServerCapabilities,
    ServerInfo, TextDocumentPositionParams, TextDocumentSyncCapability, TextDocumentSyncKind, TextDocumentSyncOptions,
    TextEdit,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::documents::Documents;
use crate::place::Place;
use crate::position::{offset, range};
use crate::wire::{self, Incoming};
use crate::workspace::{Folder, folder_of};
use crate::{Project, completion, definition, hover, rename};

/// Most messages that wait to be handled.
const MAX_WAITING: usize = 64;

/// Why the server has ended early.
#[derive(Debug, thiserror::Error)]
pub enum LspError {
    /// Standard input or output is broken.
    #[error("the editor's connection broke: {0}")]
    Io(#[from] io::Error),
    /// The editor has gone without a request to shut down.
    #[error("the editor ended without shutting the server down")]
    NoShutdown,
}

/// Serves an editor over standard input and output until it ends.
///
/// # Errors
/// The connection broke, or ended in the wrong way.
pub fn serve(project: &dyn Project) -> Result<(), LspError> {
    let (sender, receiver) = sync_channel(MAX_WAITING);
    // The thread ends with the input, or with the process.
    std::thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        loop {
            let read = wire::read(&mut input);
            let last = !matches!(read, Ok(Some(_)));
            if sender.send(read).is_err() || last {
                return;
            }
        }
    });
    run(project, &receiver, &mut io::stdout().lock())
}

/// Handles what comes in, until it ends.
pub(crate) fn run(project: &dyn Project, input: &Input, output: &mut dyn Write) -> Result<(), LspError> {
    let (documents, folders) = (Documents::default(), BTreeMap::new());
    Server { project, output, documents, folders, begun: false }.run(input)
}

/// What an editor sends, as it comes.
pub(crate) type Input = Receiver<io::Result<Option<Incoming>>>;

/// What a panic is answered with.
pub(crate) const MISTAKE: &str = "a mistake of Fanin: this request failed, the server goes on";

struct Server<'a> {
    project: &'a dyn Project,
    output: &'a mut dyn Write,
    documents: Documents,
    folders: BTreeMap<PathBuf, Folder>,
    begun: bool,
}

type Answer = Result<Value, (ErrorCode, String)>;

impl Server<'_> {
    fn run(&mut self, input: &Input) -> Result<(), LspError> {
        let mut changed: BTreeSet<PathBuf> = BTreeSet::new();
        let mut shut_down = false;
        loop {
            let next = match input.try_recv() {
                Ok(next) => next,
                Err(_) => {
                    // Nothing waits: what has changed is checked once.
                    for dir in std::mem::take(&mut changed) {
                        self.check(dir)?;
                    }
                    match input.recv() {
                        Ok(next) => next,
                        Err(_) => return Err(LspError::NoShutdown),
                    }
                }
            };
            match next? {
                None => return if shut_down { Ok(()) } else { Err(LspError::NoShutdown) },
                Some(Incoming::Skipped(why)) => self.log(why)?,
                Some(Incoming::Message(Message::Response(_))) => {}
                Some(Incoming::Message(Message::Notification(notification))) => {
                    if notification.method == "exit" {
                        return if shut_down { Ok(()) } else { Err(LspError::NoShutdown) };
                    }
                    match self.guarded(|server| server.notified(notification)) {
                        Ok(dirs) => changed.extend(dirs),
                        Err(why) => self.log(why)?,
                    }
                }
                Some(Incoming::Message(Message::Request(request))) => {
                    shut_down |= request.method == "shutdown";
                    // A request is answered from a check of what it sees.
                    for dir in std::mem::take(&mut changed) {
                        self.check(dir)?;
                    }
                    let id = request.id.clone();
                    let answer = self.guarded(|server| Ok(server.requested(request)));
                    let response = match answer.unwrap_or_else(|why| Err((ErrorCode::InternalError, why))) {
                        Ok(value) => Response::new_ok(id, value),
                        Err((code, message)) => Response::new_err(id, code as i32, message),
                    };
                    self.send(&Message::Response(response))?;
                }
            }
        }
    }

    /// Runs something that must not end the server, whatever the input.
    fn guarded<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        catch_unwind(AssertUnwindSafe(|| run(self))).unwrap_or_else(|_| Err(MISTAKE.to_owned()))
    }

    fn check(&mut self, dir: PathBuf) -> Result<(), LspError> {
        let found = self.guarded(|server| {
            let folder = server.folders.entry(dir.clone()).or_insert_with(|| Folder::new(dir));
            Ok(folder.check(server.project, &server.documents))
        });
        match found {
            Ok(all) => all.into_iter().try_for_each(|one| self.publish(&one)),
            Err(why) => self.log(why),
        }
    }

    fn log(&mut self, why: String) -> Result<(), LspError> {
        let params = LogMessageParams { typ: MessageType::WARNING, message: why };
        self.send(&Message::Notification(Notification::new("window/logMessage".to_owned(), params)))
    }

    fn publish(&mut self, params: &PublishDiagnosticsParams) -> Result<(), LspError> {
        self.send(&Message::Notification(Notification::new("textDocument/publishDiagnostics".to_owned(), params)))
    }

    fn send(&mut self, message: &Message) -> Result<(), LspError> {
        Ok(wire::write(self.output, message)?)
    }

    /// Takes a change, and gives the folders to check.
    fn notified(&mut self, notification: Notification) -> Result<Vec<PathBuf>, String> {
        let path = match notification.method.as_str() {
            "textDocument/didOpen" => {
                let DidOpenTextDocumentParams { text_document } = read(notification.params)?;
                self.documents.set(&text_document.uri, text_document.version, text_document.text)?
            }
            "textDocument/didChange" => {
                let DidChangeTextDocumentParams { text_document, content_changes } = read(notification.params)?;
                let Some(last) = content_changes.into_iter().next_back() else { return Ok(Vec::new()) };
                if last.range.is_some() {
                    return Err("a change is of a part, and the server takes whole texts".to_owned());
                }
                self.documents.set(&text_document.uri, text_document.version, last.text)?
            }
            "textDocument/didClose" => {
                let DidCloseTextDocumentParams { text_document } = read(notification.params)?;
                let Some(path) = self.documents.close(&text_document.uri) else { return Ok(Vec::new()) };
                path
            }
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => {
                // Other files may have changed with it.
                return Ok(self.folders.keys().cloned().collect());
            }
            _ => return Ok(Vec::new()),
        };
        Ok(vec![folder_of(&path, &self.documents).0])
    }

    fn requested(&mut self, request: Request) -> Answer {
        if request.method == "initialize" {
            self.begun = true;
            return value(&initialized());
        }
        if !self.begun {
            return Err((ErrorCode::ServerNotInitialized, "the first request is `initialize`".to_owned()));
        }
        let params = request.params;
        match request.method.as_str() {
            "shutdown" => Ok(Value::Null),
            "textDocument/hover" => {
                let params: HoverParams = arguments(params)?;
                self.at(&params.text_document_position_params, |place| value(&hover::hover(place)))
            }
            "textDocument/completion" => {
                let params: CompletionParams = arguments(params)?;
                self.at(&params.text_document_position, |place| value(&completion::complete(place)))
            }
            "textDocument/definition" => {
                let params: GotoDefinitionParams = arguments(params)?;
                self.at(&params.text_document_position_params, |place| value(&definition::definition(place)))
            }
            "textDocument/rename" => {
                let params: RenameParams = arguments(params)?;
                self.at(&params.text_document_position, |place| match rename::rename(place, &params.new_name) {
                    Ok(edit) => value(&edit),
                    Err(why) => Err((ErrorCode::RequestFailed, why)),
                })
            }
            "textDocument/formatting" => {
                let params: DocumentFormattingParams = arguments(params)?;
                let Some(document) = self.documents.get(&params.text_document.uri) else { return Ok(Value::Null) };
                let name = document.path.display().to_string();
                match fanin_lang::format_source(&name, &document.text) {
                    Ok(new) if new == document.text => Ok(Value::Array(Vec::new())),
                    Ok(new) => {
                        let whole = range(&document.text, 0, document.text.len());
                        value(&[TextEdit { range: whole, new_text: new }])
                    }
                    Err(error) => Err((ErrorCode::RequestFailed, error.to_string())),
                }
            }
            method => Err((ErrorCode::MethodNotFound, format!("there is no method {method}"))),
        }
    }

    /// Answers a request about a place of a flow; null if the document is none.
    fn at(&self, params: &TextDocumentPositionParams, answer: impl FnOnce(&Place<'_>) -> Answer) -> Answer {
        let Some(document) = self.documents.get(&params.text_document.uri) else { return Ok(Value::Null) };
        let (dir, _) = folder_of(&document.path, &self.documents);
        let Some(folder) = self.folders.get(&dir) else { return Ok(Value::Null) };
        let Some(name) = folder.name_of(&document.path).filter(|name| name.ends_with(".star")) else {
            return Ok(Value::Null);
        };
        let offset = offset(&document.text, params.position);
        answer(&Place { documents: &self.documents, document, folder, name, offset })
    }
}

fn initialized() -> InitializeResult {
    InitializeResult {
        capabilities: ServerCapabilities {
            text_document_sync: Some(TextDocumentSyncCapability::Options(TextDocumentSyncOptions {
                open_close: Some(true),
                change: Some(TextDocumentSyncKind::FULL),
                save: Some(true.into()),
                ..TextDocumentSyncOptions::default()
            })),
            hover_provider: Some(HoverProviderCapability::Simple(true)),
            completion_provider: Some(CompletionOptions {
                trigger_characters: Some([".", "\"", "(", "{"].map(str::to_owned).to_vec()),
                ..CompletionOptions::default()
            }),
            definition_provider: Some(OneOf::Left(true)),
            rename_provider: Some(OneOf::Left(true)),
            document_formatting_provider: Some(OneOf::Left(true)),
            ..ServerCapabilities::default()
        },
        server_info: Some(ServerInfo { name: "fanin".to_owned(), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }),
    }
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, String> {
    serde_json::from_value(params).map_err(|error| format!("a notification is not valid: {error}"))
}

fn arguments<T: DeserializeOwned>(params: Value) -> Result<T, (ErrorCode, String)> {
    serde_json::from_value(params).map_err(|error| (ErrorCode::InvalidParams, error.to_string()))
}

fn value(of: &impl Serialize) -> Answer {
    serde_json::to_value(of).map_err(|error| (ErrorCode::InternalError, error.to_string()))
}
