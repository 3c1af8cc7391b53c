// Package slacktest is a stand-in for Slack: chat.postMessage, chat.update,
// conversations.history and .replies, the upload of files, auth.test, Socket Mode and an
// incoming webhook, with the limits that Slack has and failures on demand. It keeps what a
// person would see in each channel and thread.
package slacktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The secrets that the stand-in knows at first.
const (
	Token       = "xoxb-stand-in-0000000000-abcdefghijkl" // #nosec: opens nothing but this package
	uploadPath  = "/upload/v1/"
	webhookPath = "/services/T0000000000/B0000000000/abcdefghijklmnopqrstuvwx"
)

// WebhookChannel is the id of the channel that the webhook posts to.
const WebhookChannel = "C0WEBHOOK00"

// Message is one message as it stands in a channel.
type Message struct {
	TS       string
	At       time.Time // when it arrived
	Text     string
	Blocks   json.RawMessage
	Metadata Metadata
	Edits    int // how often it was edited

	Thread    string // of a reply: the ts of the message that it replies to
	Broadcast bool   // the reply is shown in the channel, too
	Files     []File
}

// File is an uploaded file.
type File struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Title   string `json:"title"`
	Content []byte `json:"-"`
}

// Metadata is what an app attaches to its message.
type Metadata struct {
	EventType    string         `json:"event_type"`
	EventPayload map[string]any `json:"event_payload"`
}

// Request is one request that arrived.
type Request struct {
	Method string // chat.postMessage, webhook …
	Status int    // of the answer; 0 if the connection was cut
	Error  string // Slack's word, if it was refused
}

// Answer is an answer to give in place of the regular one.
type Answer struct {
	Status int // 0 means 200
	Header http.Header
	Body   string

	Done   bool // the request is carried out all the same, so only its answer is lost
	Hangup bool // the connection is cut instead of an answer

	Then func() // called before the answer, nil for nothing: what else happens just now
}

// Server is a running stand-in. Its methods may be called from any goroutine.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex // guards what follows
	channels map[string][]*Message
	ids      map[string]string // of channels by name
	answers  map[string][]Answer
	requests []Request
	uploads  map[string]*File // by id; those that are not complete
	down     bool
	token    string
	appToken string
	tickets  map[string]bool // that open a connection for Socket Mode
	sockets  []*socket
	acked    []string // ids of envelopes
	whispers []Whisper
	seq      int
}

// New starts a stand-in on a port of the loopback interface.
func New() *Server {
	s := &Server{channels: map[string][]*Message{}, ids: map[string]string{}, answers: map[string][]Answer{}, uploads: map[string]*File{}, token: Token,
		appToken: AppToken, tickets: map[string]bool{}}
	s.http = httptest.NewServer(s)
	return s
}

// Close ends it.
func (s *Server) Close() {
	s.Disconnect(true)
	s.http.Close()
}

// APIURL is where its Web API is.
func (s *Server) APIURL() string { return s.http.URL + "/api/" }

// WebhookURL is the secret URL of its webhook.
func (s *Server) WebhookURL() string { return s.http.URL + webhookPath }

// Answer queues answers to calls of a method: chat.postMessage, chat.update,
// conversations.history, …, upload or webhook; empty for the next call of any.
func (s *Server) Answer(method string, answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[method] = append(s.answers[method], answers...)
}

// SetDown cuts every connection while it is true.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// SetToken makes another token the only good one: what a revoked token meets.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Token returns the only good one.
func (s *Server) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// Recover ends all trouble: no answer is queued, the server is up and knows Token.
func (s *Server) Recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.answers)
	s.down, s.token = false, Token
}

// Messages returns what stands in a channel, the oldest first, without what is in threads
// only. The channel is an id or a name.
func (s *Server) Messages(channel string) []Message {
	return s.some(channel, func(m *Message) bool { return m.Thread == "" || m.Broadcast })
}

// Arrived returns when the first message that is about an incident, by its metadata, came
// to a channel; zero: none did.
func (s *Server) Arrived(channel, incident string) time.Time {
	for _, m := range s.Messages(channel) {
		if m.Metadata.EventPayload["id"] == incident {
			return m.At
		}
	}
	return time.Time{}
}

// Replies returns what is in the thread of a message, the oldest first.
func (s *Server) Replies(channel, ts string) []Message {
	return s.some(channel, func(m *Message) bool { return m.Thread == ts })
}

func (s *Server) some(channel string, which func(*Message) bool) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Message
	for _, m := range s.channels[s.id(channel)] {
		if which(m) {
			all = append(all, *m)
		}
	}
	return all
}

// Delete removes a message, as a person may.
func (s *Server) Delete(channel, ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.id(channel)
	s.channels[id] = slices.DeleteFunc(s.channels[id], func(m *Message) bool { return m.TS == ts })
}

// Requests returns every request that arrived, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// id returns the id of a channel, which is made if it is new.
func (s *Server) id(channel string) string {
	if channel == WebhookChannel || strings.HasPrefix(channel, "C") && len(channel) >= 9 {
		return channel
	}
	name := strings.TrimPrefix(channel, "#")
	if s.ids[name] == "" {
		s.ids[name] = fmt.Sprintf("C%010d", len(s.ids)+1)
	}
	return s.ids[name]
}

// Transport reaches the server without a network, for tests in which time is virtual.
func (s *Server) Transport() http.RoundTripper { return direct{s} }

type direct struct{ s *Server }

// RoundTrip has the server answer the request.
func (d direct) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if p != nil {
			panic(p)
		}
	}()
	w := httptest.NewRecorder()
	d.s.ServeHTTP(w, req)
	return w.Result(), nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasPrefix(req.URL.Path, socketPath) {
		s.serveSocket(w, req)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	method := "webhook"
	if m, ok := strings.CutPrefix(req.URL.Path, "/api/"); ok {
		method = m
	} else if strings.HasPrefix(req.URL.Path, uploadPath) {
		method = "upload"
	}
	forced := s.forced(method)
	reply := reply{status: http.StatusOK}
	if forced == nil || forced.Done {
		reply = s.carryOut(method, req, body)
	}
	if forced != nil {
		reply.status, reply.header, reply.body = max(forced.Status, http.StatusOK), forced.Header, forced.Body
	}
	if forced != nil && forced.Then != nil {
		forced.Then()
	}
	cut := s.down || forced != nil && forced.Hangup
	if cut {
		reply.status = 0
	}
	s.requests = append(s.requests, Request{method, reply.status, reply.word})
	if cut {
		panic(http.ErrAbortHandler)
	}
	for k, v := range reply.header {
		w.Header()[k] = v
	}
	w.WriteHeader(reply.status)
	_, _ = io.WriteString(w, reply.body)
}

// forced returns the answer that was queued for the method, if one was. While the
// server is down nothing is carried out.
func (s *Server) forced(method string) *Answer {
	if s.down {
		return &Answer{Hangup: true}
	}
	for _, m := range []string{method, ""} {
		if q := s.answers[m]; len(q) > 0 {
			s.answers[m] = q[1:]
			return &q[0]
		}
	}
	return nil
}

// reply is an answer with the word that it says.
type reply struct {
	status int
	header http.Header
	body   string
	word   string
}

func (s *Server) nextTS() string {
	s.seq++
	return strconv.Itoa(1760000000+s.seq) + ".000100"
}
