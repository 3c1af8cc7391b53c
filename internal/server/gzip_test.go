package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestWhoGetsACompressedPage(t *testing.T) {
	for header, want := range map[string]bool{
		"":                          false,
		"identity":                  false,
		"gzip":                      true,
		"GZip":                      true,
		"deflate, gzip":             true,
		"gzip;q=0":                  false,
		"gzip; q=0.0":               false,
		"gzip;q=0, *":               false,
		"*":                         true,
		"*;q=0":                     false,
		"br":                        false,
		"x-gzip":                    false,
		"gzip;q=0.5, identity":      false,
		"gzip;q=0.5, identity;q=.2": true,
		"gzip;Q=1":                  true,
		"gzip;q=1;level=9":          true,
		"gzip;level=9":              true,
		"gzip;q=nonsense":           false,
		"gzip;q=NaN":                false,
		"gzip;q=2":                  false,
		"gzip;q=-1":                 false,
		";,;=,q=1":                  false,
	} {
		if got := acceptsGzip([]string{header}); got != want {
			t.Errorf("Accept-Encoding: %s gets a compressed page: %v, want %v", header, got, want)
		}
	}
	if !acceptsGzip([]string{"br", "gzip"}) {
		t.Error("the second of two Accept-Encoding headers is not read")
	}
}

// request makes one request over a real connection and returns the answer as it comes.
func request(t *testing.T, h http.Handler, method, encoding string) (*http.Response, []byte) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", encoding) // and so the client does not decompress
	answer, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, body
}

func TestHeadersSayWhetherThePageIsCompressed(t *testing.T) {
	h := node(soon()).server(t).Handler()
	for encoding, want := range map[string]string{"gzip": "gzip", "gzip;q=0": "", "identity": ""} {
		for _, method := range []string{"GET", "HEAD"} {
			answer, body := request(t, h, method, encoding)
			if got := answer.Header.Get("Content-Encoding"); answer.StatusCode != 200 || got != want || answer.Header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s that accepts %s is answered %d, encoded %q, varying with %q", method, encoding, answer.StatusCode, got, answer.Header.Get("Vary"))
			}
			if (len(body) > 0) != (method == "GET") {
				t.Errorf("%s that accepts %s gets a body of %d bytes", method, encoding, len(body))
			}
		}
	}
}

func TestErrorsAreNotCompressed(t *testing.T) {
	h := compressed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
	}))
	answer, body := request(t, h, "GET", "gzip")
	if answer.StatusCode != 503 || answer.Header.Get("Content-Encoding") != "" || string(body) != "too many scrapes at once\n" {
		t.Errorf("an error is answered %d, encoded %q: %q", answer.StatusCode, answer.Header.Get("Content-Encoding"), body)
	}
}

func TestEmptyAnswerStaysEmpty(t *testing.T) {
	h := compressed(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if answer, body := request(t, h, "GET", "gzip"); answer.StatusCode != 200 || answer.Header.Get("Content-Encoding") != "" || len(body) > 0 {
		t.Errorf("an answer without a body is %d, encoded %q, with %d bytes", answer.StatusCode, answer.Header.Get("Content-Encoding"), len(body))
	}
}
