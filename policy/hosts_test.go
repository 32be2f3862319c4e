package policy

import "testing"

func TestHosts(t *testing.T) {
	h, err := ParseHosts("API.example.com", "*.cdn.test", "localhost:8080", "api.example.com:443", "[::1]")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"api.example.com": true, "api.EXAMPLE.com:443": true, "api.example.com:8443": true, "api.example.com.": true,
		"a.cdn.test": true, "a.b.cdn.test": true, "localhost:8080": true, "[::1]:9": true,
		"example.com": false, "xapi.example.com": false, "api.example.com.evil.test": false, "api.example.com:80:evil.test": false,
		"cdn.test": false, "localhost": false, "localhost:80": false, "": false,
	} {
		if h.Has(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
	if new(Hosts).Has("api.example.com") {
		t.Error("the zero value is not empty")
	}
	for _, bad := range []string{"", "https://api.example.com", "api.example.com/v1", "GET api.example.com", "*", "a b", "{host}"} {
		if _, err := ParseHosts("fine.test", bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
