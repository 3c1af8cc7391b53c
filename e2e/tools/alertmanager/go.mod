// The release of Alertmanager that the tests run. Its module lacks the pages that its
// binary embeds, so it is built from a copy that has an empty one in their place.
module gpuvigil/e2e/tools/alertmanager

go 1.26.0

require github.com/prometheus/alertmanager v0.35.0
