package remotewrite

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"gpuvigil/collector/series"

	"github.com/prometheus/client_golang/exp/api/remote"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	firstType  = "application/x-protobuf"
	secondType = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

func post(r *Receiver, kind, encoding string, body io.Reader) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/api/v1/write", body)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Content-Encoding", encoding)
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	return w
}

func now() int64 { return time.Now().UnixMilli() }

func TestAnswers(t *testing.T) {
	f := func(kind, encoding string, body []byte, status int, outcome Outcome, says string) {
		t.Helper()
		r := receiver(newBook("up"), Limits{Body: 4000, Decoded: 100_000, Series: 5, Samples: 6, Symbols: 40})
		w := post(r, kind, encoding, bytes.NewReader(body))
		if w.Code != status || !strings.Contains(w.Body.String(), says) {
			t.Errorf("answer %d %q, want %d and %q", w.Code, w.Body, status, says)
		}
		if n := r.Tally().Requests[outcome]; n != 1 && outcome != "" {
			t.Errorf("counted %v, want one %s", r.Tally().Requests, outcome)
		}
		if again := w.Code >= 500 || w.Code == http.StatusTooManyRequests; again {
			t.Errorf("the sender would send the same again for ever, after %d", w.Code)
		}
	}
	good := sent{named("up", "a", "b"), []sample{{now(), 1}}}
	f(firstType, "snappy", packed(first(good)), 204, Taken, "")
	f(firstType+";proto=prometheus.WriteRequest", "snappy", packed(first(good)), 204, Taken, "")
	f(secondType, "snappy", packed(second(t, good)), 204, Taken, "")
	f(firstType, "snappy", packed(nil), 204, Taken, "")
	f(firstType, "zstd", packed(first(good)), 415, Unsupported, "snappy")
	f("application/json", "snappy", packed(first(good)), 415, "", "application/x-protobuf")
	f(firstType, "snappy", []byte("not snappy at all"), 400, Malformed, "snappy")
	f(firstType, "snappy", packed(second(t, good))[:30], 400, Malformed, "snappy")
	f(firstType, "snappy", packed([]byte{1 << 3}), 400, Malformed, "protobuf")
	f(secondType, "snappy", packed(message(nil, 5, []byte{1 << 3, 7})), 400, Malformed, "protobuf") // a symbol that is not there
	f(firstType, "snappy", make([]byte, 4001), 413, TooLarge, "4000 bytes")
	f(firstType, "snappy", protowire.AppendVarint(nil, 100_001), 413, TooLarge, "100000 uncompressed")
	f(firstType, "snappy", packed(first(good, good, good, good, good, good)), 413, TooLarge, "5 series")
	f(firstType, "snappy", packed(first(sent{named("up"), make([]sample, 7)})), 413, TooLarge, "6 samples")
	f(secondType, "snappy", packed(bytes.Repeat(message(nil, 4, nil), 41)), 413, TooLarge, "40 symbols")
	f(firstType, "snappy", packed(first(good, sent{[]series.Label{{Name: "a", Value: "b"}}, good.samples})), 400, Partly, "name")
	f(firstType, "snappy", packed(first(good, sent{named("up", "a", "b", "a", "c"), good.samples})), 400, Partly, "twice")
	f(firstType, "snappy", packed(first(sent{named("up", "c", "", "a", "", "b", "", "c", ""), good.samples})), 400, Partly, "twice")
	f(firstType, "snappy", packed(first(sent{named("up", "a", "\xff"), good.samples})), 400, Partly, "UTF-8")
	f(firstType, "snappy", packed(first(sent{named("up", "a", strings.Repeat("x", maxLabelValue+1)), good.samples})), 400, Partly, "longer")
	f(secondType, "snappy", packed(second(t, sent{make([]series.Label, maxLabels+1), good.samples})), 400, Partly, "128 labels")
}

// The library that Prometheus' senders are made with reads what was written from the answer.
func TestLibrarySends(t *testing.T) {
	b := newBook("up")
	r := receiver(b, Limits{})
	s := httptest.NewServer(r.Handler())
	defer s.Close()
	api, err := remote.NewAPI(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	stats, err := api.Write(t.Context(), remote.WriteV2MessageType, raw(second(t, sent{named("up"), []sample{{now(), 1}, {now(), 2}}}, sent{named("down"), []sample{{now(), 1}}})))
	if err != nil || stats.Samples != 3 {
		t.Errorf("the sender is told of %d samples, %v, want 3: what nobody wants is no failure of it", stats.Samples, err)
	}
	if stats, err := api.Write(t.Context(), remote.WriteV1MessageType, raw(first(sent{named("up"), []sample{{now(), 1}}}))); err != nil || stats.Samples != 0 {
		t.Errorf("version 1: %+v, %v", stats, err)
	}
}

// raw is a message that is encoded already.
type raw []byte

func (r raw) Size() int { return len(r) }
func (r raw) MarshalToSizedBuffer(b []byte) (int, error) {
	return copy(b, r), nil
}

func TestSendersAreToldToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := receiver(newBook("up"), Limits{Concurrent: 1, Pending: 1})
		slow, end := io.Pipe()
		go post(r, firstType, "snappy", slow)
		synctest.Wait()
		busy := func(why string) {
			t.Helper()
			w := post(r, firstType, "snappy", bytes.NewReader(packed(first(sent{named("up"), []sample{{now(), 1}, {now(), 2}}}))))
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: answer %d, Retry-After %q, want 503 with one", why, w.Code, w.Header().Get("Retry-After"))
			}
		}
		busy("while another request is read")
		end.CloseWithError(io.ErrUnexpectedEOF)
		synctest.Wait()
		busy("when too many samples wait")
		if got, want := fmt.Sprint(r.Tally().Requests), "map[busy:2 unreadable:1]"; got != want {
			t.Errorf("counted %s, want %s", got, want)
		}
	})
}

func TestBrokenOffAndGone(t *testing.T) {
	r := receiver(newBook("up"), Limits{Concurrent: 1})
	if w := post(r, firstType, "snappy", iotest.ErrReader(io.ErrUnexpectedEOF)); w.Code != 400 {
		t.Errorf("a body that breaks off: answer %d", w.Code)
	}
	r.slots <- struct{}{}
	ctx, gone := context.WithCancel(t.Context())
	gone()
	if r.enter(ctx) {
		t.Error("a request whose sender has gone is read")
	}
}
