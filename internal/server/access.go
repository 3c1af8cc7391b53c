package server

import (
	"context"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// maxBody and maxHeader bound what a client may send: nothing here takes a body.
const (
	maxBody   = 4 << 10
	maxHeader = 16 << 10
)

// HTTPServer returns a server for the handler with limits on what a client may
// send and for how long.
func HTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          stdlog.New(complaints{log}, "", 0),
	}
}

// complaints takes what net/http has to say. Most of it is about a client, and any
// client could fill the log with it.
type complaints struct{ log *slog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, strings.TrimSuffix(string(line), "\n")
	if strings.Contains(text, "panic serving") || strings.HasPrefix(text, "http: Accept error") {
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, text)
	return len(line), nil
}

// limited adds to every answer what tells browsers to be careful with it.
func limited(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Frame-Options", "DENY")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		head.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		h.ServeHTTP(w, r)
	})
}

// local lets in clients on this machine; with an authenticated listener everybody
// who came so far.
func (s *Server) local(h http.Handler) http.Handler { return Local(h, s.authenticated) }

// Local lets in clients on this machine, and others while they are allowed.
func Local(h http.Handler, others func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := notLocal(r); reason != "" && !others() {
			http.Error(w, "403 forbidden: "+reason+".\n\n"+
				"Without authentication, the page and the API answer on the node itself only. To read them from elsewhere,\n"+
				"set users or client certificates in --web.config.file, or forward a port: ssh -L or kubectl port-forward.\n"+
				"/metrics and /-/ready answer everywhere.", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) authenticated() bool { return s.cfg.Authenticated != nil && s.cfg.Authenticated() }

// notLocal says why a request is not one of a client on this machine, or nothing.
// A name in Host that is not this machine's is a foreign site that had its name
// resolve to us, or a proxy that speaks for clients elsewhere.
func notLocal(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !peer.Addr().Unmap().IsLoopback():
		return "the client is not on this node"
	case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "":
		return "the request was forwarded by a proxy"
	case !loopbackHost(r.Host):
		return "the request is not addressed to localhost"
	}
	return ""
}

func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}
