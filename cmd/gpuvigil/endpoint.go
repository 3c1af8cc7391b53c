package main

import (
	"fmt"
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
)

// served returns the models behind a URL, or the one that URL#engine/model names.
func (a *answer) served(link string) []server.Endpoint {
	var out []server.Endpoint
	for _, e := range a.snapshot.Endpoints {
		if link == e.URL || link == keyOf(e).String() {
			out = append(out, e)
		}
	}
	return out
}

func keyOf(e server.Endpoint) collector.EndpointKey {
	return collector.EndpointKey{URL: e.URL, Engine: e.Engine, Model: e.Model}
}

// endpoint tells of all models behind the URL. What is wrong with the GPUs behind an
// endpoint is wrong with the endpoint.
func (a *answer) endpoint(link string) subject {
	served := a.served(link)
	s := subject{name: "endpoint:" + link}
	if len(served) > 0 {
		link = served[0].URL
	}
	if reason := a.targetReason(link); reason != "" {
		s.unread = "its page cannot be read: " + reason
		s.facts = append(s.facts, s.unread+"; the agent's log and gpuvigil doctor say more")
	}
	for _, e := range served {
		if e.Readings[metric.EndpointUp.Name] == 1 {
			s.facts = append(s.facts, endpointFact(e))
		} else if e.Model != "" {
			s.facts = append(s.facts, fmt.Sprintf("%s, model %s: nothing is known of it now", printable(e.Engine), printable(e.Model)))
		}
	}
	s.findings = a.about(func(f server.Finding) bool {
		return slices.ContainsFunc(served, func(e server.Endpoint) bool {
			return f.Subject == detect.Subject{Kind: "endpoint", ID: keyOf(e).String()} ||
				f.Subject.Kind == "gpu" && (len(e.GPUs) == 0 || slices.Contains(e.GPUs, f.Subject.ID))
		})
	})
	return s
}

func endpointFact(e server.Endpoint) string {
	return fmt.Sprintf("%s, model %s: %s running, %s waiting, queue p95 %s, KV cache %s", printable(e.Engine), printable(e.Model),
		reading(e.Readings, metric.RequestsRunning, "%.0f", 1), reading(e.Readings, metric.RequestsWaiting, "%.0f", 1),
		reading(e.Readings, metric.QueueTimeP95, "%.2g s", 1), reading(e.Readings, metric.KVCacheUsage, "%.0f %%", 100))
}

// reasonWords says in words why a page is not understood.
var reasonWords = map[string]string{
	"unreachable": "the server does not answer", "timeout": "it took longer than inference.timeout", "tls": "its certificate is not trusted, or it speaks no TLS",
	"credentials": "it wants a token or a password, or those given are wrong or not there", "status": "it answers with an error", "redirect": "it redirects elsewhere",
	"forbidden_address": "its address is link-local or a metadata service's", "too_large": "its page is too large", "cut_off": "its page breaks off",
	"empty": "its page is empty", "html": "it serves HTML", "json": "it serves JSON that is no server's", "syntax": "its page is not in the text format",
	"unknown_engine": "its page is of no inference server that is known", "other_engine": "its page is not of the engine that is configured",
}

// targetReason says why the page at the URL cannot be read; empty if it can, or if there
// is no such target.
func (a *answer) targetReason(link string) string {
	for _, t := range a.snapshot.Targets {
		if t.URL == link {
			return reasonOf(t)
		}
	}
	return ""
}

func reasonOf(t server.Target) string {
	for _, reason := range metric.TargetReasons.Values {
		if t.Readings[fmt.Sprintf("%s{%s=%q}", metric.TargetFailing.Name, metric.TargetReasons.Label, reason)] == 1 {
			return fmt.Sprintf("%s (%s)", reasonWords[reason], reason)
		}
	}
	return ""
}

// unreadTargets names the inference servers that cannot be read; empty if all can.
func (a *answer) unreadTargets() string {
	var names []string
	for _, t := range a.snapshot.Targets {
		if reason := reasonOf(t); reason != "" {
			names = append(names, t.URL+": "+reason)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d servers cannot be read: %s", len(names), len(a.snapshot.Targets), strings.Join(first(names, "servers"), "; "))
}
