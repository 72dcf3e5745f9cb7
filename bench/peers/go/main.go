// The peer in Go: what a team would write on net/http. Bodies are checked by json.RawMessage and merged.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	backend = "http://127.0.0.1:" + os.Getenv("PEER_BACKEND_PORT")
	keys    = []string{"a", "b", "c", "d", "e"}
	client  = &http.Client{
		Timeout:   2 * time.Second,
		Transport: &http.Transport{MaxIdleConns: 4000, MaxIdleConnsPerHost: 2000, DisableCompression: true},
	}
)

func get(ctx context.Context, path string) (json.RawMessage, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, backend+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return body, err
}

// send answers with the value, or with 502 and the error.
func send(w http.ResponseWriter, value any, err error) {
	var body []byte
	if err == nil {
		body, err = json.Marshal(value)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

func page(w http.ResponseWriter, r *http.Request) {
	id := url.PathEscape(r.PathValue("id"))
	answers := make([]json.RawMessage, len(keys))
	errors := make([]error, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Add(1)
		go func() {
			defer all.Done()
			answers[i], errors[i] = get(r.Context(), "/"+key+"/"+id)
		}()
	}
	all.Wait()
	merged := make(map[string]json.RawMessage, len(keys))
	for i, key := range keys {
		if errors[i] != nil {
			send(w, nil, errors[i])
			return
		}
		merged[key] = answers[i]
	}
	send(w, merged, nil)
}

func search(w http.ResponseWriter, r *http.Request) {
	body, err := get(r.Context(), "/ids?q="+url.QueryEscape(r.URL.Query().Get("q")))
	var found struct{ IDs []int64 }
	if err == nil {
		err = json.Unmarshal(body, &found)
	}
	if err != nil {
		send(w, nil, err)
		return
	}
	ids := make([]string, len(found.IDs))
	for i, id := range found.IDs {
		ids[i] = strconv.FormatInt(id, 10)
	}
	vacancies, err := get(r.Context(), "/vacancies?ids="+strings.Join(ids, ","))
	send(w, vacancies, err)
}

func raw(w http.ResponseWriter, r *http.Request) {
	body, err := get(r.Context(), "/raw")
	send(w, body, err)
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page/{id}", page)
	mux.HandleFunc("GET /search", search)
	mux.HandleFunc("GET /raw", raw)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PEER_PORT"), mux))
}
