// Two clients written in Go, franz-go and Sarama. Requests and answers are those of tests/clients/python/serving.py.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"time"
)

const (
	wait       = 30 * time.Second
	digestFrom = 1000
)

var errLacking = errors.New("lacking")

// Request holds the fields of all requests; each uses some of them.
type Request struct {
	Op         string
	Topic      string
	Partition  int32
	Partitions int32
	Total      int32
	Before     int64
	Codec      string
	Idempotent bool
	Records    []Record
	Starts     [][3]int64 // partition, first offset, how many records
	Config     map[string]*string
	Changes    [][3]string // operation, name, value
	At         any         // "earliest", "latest", "max" or milliseconds
	ID         string      // of a transactional producer
	Commit     bool
	Group      string
	Count      int64
	Isolation  string // "read_committed" or "read_uncommitted"
	Login      *Login
}

// Record is what a client is to write.
type Record struct {
	Partition  int32
	Key, Value []byte
	Headers    []Header
	Timestamp  time.Time
}

// Header may have a value of null, as a key or a value may.
type Header struct {
	Name  string
	Value []byte
}

func (r *Record) UnmarshalJSON(data []byte) error {
	var millis int64
	err := json.Unmarshal(data, &[]any{&r.Partition, &r.Key, &r.Value, &r.Headers, &millis})
	r.Timestamp = time.UnixMilli(millis)
	return err
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

type client interface {
	serve(Request) (any, error)
	close()
}

func main() {
	newClient := map[string]func(string, *Login) client{"franz": newFranz, "sarama": newSarama}[os.Args[1]]
	unsecured := newClient(os.Args[2], nil)
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var request Request
		if in.Decode(&request) != nil {
			return
		}
		var result any
		var err error
		if request.Login == nil {
			result, err = unsecured.serve(request)
		} else {
			loggedIn := newClient(request.Login.Bootstrap, request.Login)
			result, err = loggedIn.serve(request)
			loggedIn.close()
		}
		answer := map[string]any{"result": result}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		out.Encode(answer)
	}
}

func shown(data []byte) any {
	if data == nil {
		return nil
	}
	if len(data) > digestFrom {
		digest := sha256.Sum256(data)
		return "sha256:" + hex.EncodeToString(digest[:])
	}
	return base64.StdEncoding.EncodeToString(data)
}
