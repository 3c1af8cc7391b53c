package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"gpuvigil/internal/metric"
)

var scrapes = vm.GetOrCreateCounter(metric.Scrapes.Series())

// maxScrapes bounds the scrapes that are answered at once.
const maxScrapes = 16

// scrapeLimit is how long a client may take to read a page: one that does not read
// keeps others out.
const scrapeLimit = 10 * time.Second

func (s *Server) scrape(w http.ResponseWriter, r *http.Request) {
	scrapes.Inc()
	select {
	case s.scrapes <- struct{}{}:
		defer func() { <-s.scrapes }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are being answered, and no more at once: try again.", maxScrapes), http.StatusServiceUnavailable)
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeLimit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.cfg.Log.Debug("A scrape has only the server's limit.", "err", err)
	}
	s.metrics.ServeHTTP(w, r)
}

// exposed answers a scrape in the format that the client prefers. The whole page in
// one of the text formats, which is what Prometheus asks for unless it wants native
// histograms, is written here; promhttp does the rest.
func (s *Server) exposed() http.Handler {
	formats := expfmt.DefaultAcceptedFormats()
	if !s.cfg.DCGM {
		formats = expfmt.DefaultOpenMetricsAcceptedFormats()
	}
	rest := promhttp.HandlerForTransactional(s, promhttp.HandlerOpts{
		ErrorLog:           slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug), // what a client asked amiss, or that it has gone
		ErrorHandling:      promhttp.ContinueOnError,
		AcceptedFormats:    formats,
		DisableCompression: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		format := expfmt.NegotiateAccept(r.Header, formats...)
		kind := format.FormatType()
		if r.URL.RawQuery != "" || kind != expfmt.TypeTextPlain && kind != expfmt.TypeOpenMetrics {
			rest.ServeHTTP(w, r)
			return
		}
		page, done := s.fresh()
		defer done()
		text, err := page.write(kind == expfmt.TypeOpenMetrics)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Add("Vary", "Accept")
		w.Header().Set("Content-Type", string(format))
		if _, err := w.Write(text); err != nil {
			s.cfg.Log.Debug("A scrape was not read to its end.", "err", err)
		}
	})
}
