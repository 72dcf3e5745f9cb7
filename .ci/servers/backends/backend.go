// Go as a backend: see ../backend.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
)

type seen struct {
	Target  string            `json:"target"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

func main() {
	file, err := os.OpenFile(os.Args[2], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	var lock sync.Mutex
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = []byte("unreadable: " + err.Error())
		}
		headers := map[string]string{"host": r.Host}
		for name, values := range r.Header {
			headers[strings.ToLower(name)] = strings.Join(values, ", ")
		}
		line, err := json.Marshal(seen{r.Method + " " + r.RequestURI + " " + r.Proto, r.URL.Path, headers, string(body)})
		if err != nil {
			log.Fatal(err)
		}
		lock.Lock()
		defer lock.Unlock()
		if _, err := file.Write(append(line, '\n')); err != nil {
			log.Fatal(err)
		}
		w.Header().Set("content-type", "text/plain")
		io.WriteString(w, "ok")
	}
	// Not the default mux, which redirects to cleaned paths.
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(handler)))
}
