package monitorclient

import "strings"

// hint says what to do about a monitor that does not answer, by gRPC's own words.
func hint(text string) string {
	switch {
	case strings.Contains(text, "handshake failed") && strings.Contains(text, "first record does not look like a TLS handshake"):
		return "it does not speak TLS: leave --tls-ca and --tls-cert out, or start it with --auth"
	case strings.Contains(text, "handshake failed"):
		return "it is there, and is not trusted: name the CA that it has its certificate from (--tls-ca, WATTMARK_TLS_CA), and dial a name that is in it"
	case strings.Contains(text, "server preface"):
		return "is wattmark monitor running there, and does it speak TLS? then name its CA (--tls-ca, WATTMARK_TLS_CA)"
	}
	return "is wattmark monitor running there?"
}
