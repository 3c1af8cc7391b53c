package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of each message. The id is the same when the same state of an incident is
// posted again, so that a receiver can know a duplicate by it.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
const (
	HeaderID          = "Webhook-Id"
	HeaderTimestamp   = "Webhook-Timestamp" // Unix time of the attempt, in seconds
	HeaderSignature   = "Webhook-Signature" // "v1," and the signature, for each key, separated by spaces
	HeaderIdempotency = "Idempotency-Key"   // the id once more, where it is looked for
)

const (
	keyPrefix  = "whsec_" // of a key that is written in base64
	minKey     = 16       // bytes
	maxKeys    = 5
	signatures = "v1,"
)

// sign sets the headers of one attempt.
func (w *Webhook) sign(h http.Header, id string, now time.Time, body []byte) error {
	keys, err := w.keys()
	if err != nil {
		return err
	}
	at := strconv.FormatInt(now.Unix(), 10)
	h.Set(HeaderID, id)
	h.Set(HeaderIdempotency, id)
	h.Set(HeaderTimestamp, at)
	var all []string
	for _, key := range keys {
		all = append(all, Signature(key, id, at, body))
	}
	if len(all) > 0 {
		h.Set(HeaderSignature, strings.Join(all, " "))
	}
	return nil
}

// Signature returns what a receiver compares with: HMAC-SHA256, by the key, over id,
// timestamp and body, joined by dots, in base64 behind "v1,".
func Signature(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return signatures + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// keys reads the keys, one on each line; none if messages are not signed. While a key is
// being replaced there are two. The errors say nothing of what was read.
func (w *Webhook) keys() ([][]byte, error) {
	if w.cfg.Key == nil {
		return nil, nil
	}
	secret, err := w.cfg.Key()
	if err != nil {
		return nil, fmt.Errorf("read the key that signs messages: %w", err)
	}
	var keys [][]byte
	for line := range strings.Lines(secret) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key := []byte(line)
		if encoded, ok := strings.CutPrefix(line, keyPrefix); ok {
			if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
				return nil, errors.New("a key that signs messages begins with " + keyPrefix + " and is not base64 behind it")
			}
		}
		if len(key) < minKey {
			return nil, fmt.Errorf("a key that signs messages is shorter than %d bytes: make one by `openssl rand -base64 32`", minKey)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("found %d keys that sign messages, allowed: 1 to %d, one on each line", len(keys), maxKeys)
	}
	return keys, nil
}
