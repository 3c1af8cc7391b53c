package server

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// compressed compresses what h answers to clients that accept it. promhttp could do
// so too, but takes twice as long to make the page a little smaller than the
// fastest level makes it, and it goes over the network once.
func compressed(h http.Handler) http.Handler {
	writers := sync.Pool{New: func() any {
		z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		return z
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !acceptsGzip(r.Header.Values("Accept-Encoding")) {
			h.ServeHTTP(w, r)
			return
		}
		z := writers.Get().(*gzip.Writer)
		defer writers.Put(z)
		answer := &zipped{ResponseWriter: w, z: z}
		h.ServeHTTP(answer, r)
		answer.close()
	})
}

// zipped compresses a good answer; one that says what went wrong stays plain.
type zipped struct {
	http.ResponseWriter
	z     *gzip.Writer
	begun bool
	plain bool
}

// WriteHeader decides whether the body is compressed.
func (a *zipped) WriteHeader(status int) {
	if !a.begun {
		a.begun = true
		if a.plain = status != http.StatusOK; !a.plain {
			a.Header().Set("Content-Encoding", "gzip")
			a.Header().Del("Content-Length")
			a.z.Reset(a.ResponseWriter)
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write compresses p.
func (a *zipped) Write(p []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if a.plain {
		return a.ResponseWriter.Write(p)
	}
	return a.z.Write(p)
}

// close writes what is left. It fails only when the client has gone, and then
// there is nobody to tell.
func (a *zipped) close() {
	if a.begun && !a.plain {
		_ = a.z.Close()
	}
}

// acceptsGzip reports whether the Accept-Encoding headers allow gzip and do not
// prefer the plain text.
func acceptsGzip(headers []string) bool {
	weights := map[string]float64{}
	for _, header := range headers {
		for entry := range strings.SplitSeq(header, ",") {
			name, parameters, _ := strings.Cut(entry, ";")
			weights[strings.ToLower(strings.TrimSpace(name))] = weight(parameters)
		}
	}
	zip, listed := weights["gzip"]
	if !listed {
		zip = weights["*"]
	}
	return zip > 0 && zip >= weights["identity"]
}

// weight returns the q of an entry's parameters: 1 if there is none, 0 if it is no
// number from 0 to 1.
func weight(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		q, err := strconv.ParseFloat(value, 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}
