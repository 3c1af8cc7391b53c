package slacktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// AppToken is the token that opens connections for Socket Mode.
const AppToken = "xapp-1-stand-in-0000000000-zyxwvutsrqpo" // #nosec: opens nothing but this package

const socketPath = "/link/"

const pingEvery = 5 * time.Second // Slack pings too; a client gives up on who does not

// Whisper is a message that one person sees.
type Whisper struct{ Channel, User, Text string }

// socket is a connection for Socket Mode.
type socket struct {
	mu   sync.Mutex // of writes
	conn *websocket.Conn
}

func (c *socket) send(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.WriteJSON(v)
}

// open answers apps.connections.open with a URL that works once.
func (s *Server) open(req *http.Request) reply {
	if req.Header.Get("Authorization") != "Bearer "+s.appToken {
		return refuse("invalid_auth")
	}
	s.seq++
	ticket := "secret-ticket-" + strconv.Itoa(s.seq)
	s.tickets[ticket] = true
	return answer(map[string]any{"ok": true, "url": "ws" + strings.TrimPrefix(s.http.URL, "http") + socketPath + "?ticket=" + ticket})
}

// serveSocket holds one connection until either side ends it.
func (s *Server) serveSocket(w http.ResponseWriter, req *http.Request) {
	ticket := req.URL.Query().Get("ticket")
	s.mu.Lock()
	good := s.tickets[ticket] && !s.down
	delete(s.tickets, ticket)
	s.mu.Unlock()
	if !good {
		http.Error(w, "no such ticket", http.StatusForbidden)
		return
	}
	conn, err := (&websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}).Upgrade(w, req, nil)
	if err != nil {
		return
	}
	c := &socket{conn: conn}
	s.mu.Lock()
	s.sockets = append(s.sockets, c)
	s.mu.Unlock()
	stop := make(chan struct{})
	defer func() {
		close(stop)
		s.mu.Lock()
		s.sockets = slices.DeleteFunc(s.sockets, func(o *socket) bool { return o == c })
		s.mu.Unlock()
		_ = conn.Close()
	}()
	if c.send(map[string]any{"type": "hello", "num_connections": 1, "connection_info": map[string]any{"app_id": "A0000000001"}}) != nil {
		return
	}
	go ping(conn, stop)
	for {
		var ack struct {
			EnvelopeID string `json:"envelope_id"`
		}
		if conn.ReadJSON(&ack) != nil {
			return
		}
		s.mu.Lock()
		s.acked = append(s.acked, ack.EnvelopeID)
		s.mu.Unlock()
	}
}

func ping(conn *websocket.Conn, stop <-chan struct{}) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		if conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(pingEvery)) != nil {
			return
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// Connections returns how many connections for Socket Mode there are.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// Disconnect asks everybody who listens to connect anew, as Slack does every few hours; if
// rudely, the connections are cut instead.
func (s *Server) Disconnect(rudely bool) {
	s.mu.Lock()
	sockets := slices.Clone(s.sockets)
	s.mu.Unlock()
	for _, c := range sockets {
		if rudely {
			_ = c.conn.Close()
		} else {
			_ = c.send(map[string]any{"type": "disconnect", "reason": "refresh_requested"})
		}
	}
}

// SetAppToken makes another app token the only good one.
func (s *Server) SetAppToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appToken = token
}

// Button is one that a message shows.
type Button struct{ Action, Value, Label string }

// Buttons returns those of a message.
func (m *Message) Buttons() []Button {
	var blocks []struct {
		Type     string
		Elements []struct {
			Type     string
			ActionID string `json:"action_id"`
			Value    string
			Text     any
		}
	}
	if json.Unmarshal(m.Blocks, &blocks) != nil {
		return nil
	}
	var all []Button
	for _, b := range blocks {
		for _, e := range b.Elements {
			if b.Type != "actions" || e.Type != "button" {
				continue
			}
			label, _ := e.Text.(map[string]any)
			all = append(all, Button{e.ActionID, e.Value, fmt.Sprint(label["text"])})
		}
	}
	return all
}

// Press presses a button of a message, as the user of this name, and returns the id of the
// envelope that who listens has to acknowledge. An error says that nobody listens.
func (s *Server) Press(channel string, m Message, b Button, user string) (string, error) {
	s.mu.Lock()
	s.seq++
	id := fmt.Sprint("envelope-", s.seq)
	sockets := slices.Clone(s.sockets)
	s.mu.Unlock()
	if len(sockets) == 0 {
		return "", fmt.Errorf("press %s: nobody listens", b.Action)
	}
	return id, sockets[0].send(map[string]any{
		"type": "interactive", "envelope_id": id, "accepts_response_payload": false,
		"payload": map[string]any{
			"type": "block_actions", "user": map[string]any{"id": "U0000000009", "username": user, "name": user},
			"channel": map[string]any{"id": channel}, "message": map[string]any{"ts": m.TS},
			"actions": []map[string]any{{"type": "button", "block_id": "b", "action_id": b.Action, "value": b.Value}},
		},
	})
}

// Acked returns the ids of the envelopes that were acknowledged.
func (s *Server) Acked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acked)
}

// Whispers returns what single people were told.
func (s *Server) Whispers() []Whisper {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.whispers)
}

func (s *Server) whisper(form url.Values) reply {
	w := Whisper{form.Get("channel"), form.Get("user"), form.Get("text")}
	if w.User == "" {
		return refuse("user_not_in_channel")
	}
	s.whispers = append(s.whispers, w)
	return answer(map[string]any{"ok": true, "message_ts": s.nextTS()})
}
