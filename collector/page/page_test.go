package page

import (
	"net/http"
	"testing"
)

// A redirect that leaves TLS on the same host is not followed: the token would go over
// the wire for all to read.
func TestRedirects(t *testing.T) {
	from, _ := http.NewRequest(http.MethodGet, "https://h/metrics", nil)
	for to, ok := range map[string]bool{"https://h/other": true, "http://h/metrics": false, "https://h:8443/metrics": false, "https://g/metrics": false} {
		req, _ := http.NewRequest(http.MethodGet, to, nil)
		if err := sameServer(req, []*http.Request{from}); (err == nil) != ok {
			t.Errorf("a redirect from https://h/metrics to %s: %v", to, err)
		}
	}
}

func TestForbiddenAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:80": true, "10.0.0.1:80": true, "[::1]:80": true, "[2001:db8::1]:443": true,
		"169.254.169.254:80": false, "[fe80::1]:80": false, "[fe80::1%eth0]:80": false, "[::ffff:169.254.169.254]:80": false,
		"[fd00:ec2::254]:80": false, "100.100.100.200:80": false, "224.0.0.1:80": false,
	} {
		if err := refuseForbidden("tcp", address, nil); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}
