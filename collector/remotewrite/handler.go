package remotewrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/exp/api/remote"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes, as metric.WriteOutcomes has them. Senders come again after Busy only.
const (
	Taken       Outcome = "taken"
	Partly      Outcome = "partly" // some of its series will not do, the rest is taken
	Malformed   Outcome = "malformed"
	Unsupported Outcome = "unsupported" // compressed in another way
	TooLarge    Outcome = "too_large"
	Unreadable  Outcome = "unreadable" // it broke off
	Busy        Outcome = "busy"
)

// retryAfter is when a sender should come again, in seconds.
const retryAfter = "5"

// waitForTurn is how long a request waits for others before its sender is sent away.
const waitForTurn = 2 * time.Second

// buffers are what reading a request takes, kept for the next one.
type buffers struct {
	body  bytes.Buffer
	batch batch
}

// maxSpare is the size beyond which buffers are not kept: one large request must not
// hold memory for ever.
const maxSpare = 8 << 20

// Handler serves requests to write. Who may send them is the business of the one who
// serves it. It answers 400 and 413 to what would not do a second time either, and 503
// with Retry-After to what will.
func (r *Receiver) Handler() http.Handler {
	types := remote.MessageTypes{remote.WriteV1MessageType, remote.WriteV2MessageType}
	// Bodies are unpacked in Store, within our limits, and not by the library's own middleware.
	return remote.NewWriteHandler(storage{r}, types, remote.WithWriteHandlerMiddlewares())
}

// failure is what is answered to a request that is not taken as a whole.
type failure struct {
	outcome Outcome
	status  int
	err     error
}

// storage is the receiver as the library's handler calls it.
type storage struct{ *Receiver }

// Store is called for each request whose Content-Type is one of ours.
func (r storage) Store(req *http.Request, kind remote.WriteMessageType) (*remote.WriteResponse, error) {
	answer := remote.NewWriteResponse()
	t, size, f := r.store(req, kind)
	answer.Samples = t.samples
	r.count(f, size)
	if f == nil {
		return answer, nil
	}
	answer.SetStatusCode(f.status)
	if f.outcome == Busy {
		answer.SetExtraHeader("Retry-After", retryAfter)
	}
	r.cfg.Log.Debug("A request to write was not taken as a whole.", "outcome", f.outcome, "err", f.err, "from", req.RemoteAddr)
	return answer, f.err
}

func (r *Receiver) count(f *failure, size int) {
	outcome := Taken
	if f != nil {
		outcome = f.outcome
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tally.Requests == nil {
		r.tally.Requests = map[Outcome]uint64{}
	}
	r.tally.Requests[outcome]++
	r.tally.Bytes += uint64(size)
}

func (r *Receiver) store(req *http.Request, kind remote.WriteMessageType) (t taken, size int, f *failure) {
	if e := req.Header.Get("Content-Encoding"); e != "" && e != string(remote.SnappyBlockCompression) {
		return t, 0, &failure{Unsupported, http.StatusUnsupportedMediaType, errors.New("the encoding is another one than snappy, the only one that remote write 1 and 2 have")}
	}
	if req.ContentLength > r.cfg.Limits.Body {
		return t, 0, r.tooLarge()
	}
	if !r.enter(req.Context()) {
		return t, 0, &failure{Busy, http.StatusServiceUnavailable, errors.New("too many requests are being read: come again")}
	}
	defer r.leave()
	buf := r.pool.Get().(*buffers)
	defer r.spare(buf)
	buf.body.Reset()
	n, err := buf.body.ReadFrom(io.LimitReader(req.Body, r.cfg.Limits.Body+1))
	switch {
	case err != nil:
		return t, int(n), &failure{Unreadable, http.StatusBadRequest, errors.New("the body breaks off")}
	case n > r.cfg.Limits.Body:
		return t, int(n), r.tooLarge()
	}
	if f := r.unpack(buf, kind); f != nil {
		return t, int(n), f
	}
	if t, err = r.take(&buf.batch, time.Now()); err != nil {
		return t, int(n), &failure{Busy, http.StatusServiceUnavailable, err}
	}
	if t.reason != "" {
		return t, int(n), &failure{Partly, http.StatusBadRequest,
			fmt.Errorf("some series were left out, the rest is taken: %s", reasonText[t.reason])}
	}
	return t, int(n), nil
}

var reasonText = map[string]string{
	badLabels:  "labels are not well formed, come twice or are not UTF-8",
	noName:     "a series has no metric's name",
	manyLabels: fmt.Sprintf("a series has more than %d labels, or one with a name longer than %d or a value longer than %d bytes", maxLabels, maxLabelName, maxLabelValue),
}

func (r *Receiver) tooLarge() *failure {
	return &failure{TooLarge, http.StatusRequestEntityTooLarge,
		fmt.Errorf("the body is larger than %d bytes, or %d uncompressed: send fewer samples at once", r.cfg.Limits.Body, r.cfg.Limits.Decoded)}
}

// unpack makes a batch of a body. What it says of its own size is looked at before
// anything is allocated for it.
func (r *Receiver) unpack(buf *buffers, kind remote.WriteMessageType) *failure {
	b := &buf.batch
	b.reset()
	b.second = kind == remote.WriteV2MessageType
	body := buf.body.Bytes()
	size, err := snappy.DecodedLen(body)
	switch {
	case err != nil:
		return &failure{Malformed, http.StatusBadRequest, errors.New("the body is not in snappy's block format")}
	case size > r.cfg.Limits.Decoded:
		return r.tooLarge()
	}
	if cap(b.data) < size {
		b.data = make([]byte, size+size/4)
	}
	if b.data, err = snappy.Decode(b.data[:cap(b.data)], body); err != nil {
		b.data = nil
		return &failure{Malformed, http.StatusBadRequest, errors.New("the body is not in snappy's block format")}
	}
	switch err := b.read(&r.seeds, &r.cfg.Limits); {
	case errors.Is(err, errMalformed):
		return &failure{Malformed, http.StatusBadRequest, err}
	case err != nil:
		return &failure{TooLarge, http.StatusRequestEntityTooLarge, err}
	}
	return nil
}

// enter waits for its turn for a while.
func (r *Receiver) enter(ctx context.Context) bool {
	select {
	case r.slots <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(waitForTurn)
	defer timer.Stop()
	select {
	case r.slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (r *Receiver) leave() { <-r.slots }

func (r *Receiver) spare(buf *buffers) {
	if buf.body.Cap() <= maxSpare && cap(buf.batch.data) <= maxSpare {
		r.pool.Put(buf)
	}
}
