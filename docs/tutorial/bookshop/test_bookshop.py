"""Tests of the tutorial's service, its errors included. Start the backends and `fanin serve` first.

    python3 -m unittest -v test_bookshop
"""

import json
import os
import unittest
import urllib.error
import urllib.request

SERVICE = os.environ.get("SERVICE", "http://127.0.0.1:8080")
BOOKS = os.environ.get("BOOKS", "http://127.0.0.1:9001")
REVIEWS = os.environ.get("REVIEWS", "http://127.0.0.1:9002")


def send(url, body=None):
    """The status, the headers and the JSON of a response, whatever the status. A body makes it a POST."""
    request = urllib.request.Request(url, None if body is None else body.encode())
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status, response.headers, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, json.load(error)


def fault(backend, kind):
    send(f"{backend}/fault/{kind}", body="")


class Bookshop(unittest.TestCase):
    def tearDown(self):
        fault(BOOKS, "none")
        fault(REVIEWS, "none")

    def test_page_has_book_and_reviews(self):
        status, headers, page = send(f"{SERVICE}/books/1")
        self.assertEqual(status, 200)
        self.assertEqual(page["book"]["title"], "The Left Hand of Darkness")
        self.assertEqual(len(page["reviews"]), 2)
        self.assertNotIn("fanin-partial", headers)

    def test_unknown_book_is_404(self):
        status, _, problem = send(f"{SERVICE}/books/9")
        self.assertEqual((status, problem["detail"]), (404, "there is no book 9"))

    def test_slow_reviews_leave_a_partial_page(self):
        fault(REVIEWS, "slow")
        status, headers, page = send(f"{SERVICE}/books/1")
        self.assertEqual((status, page["reviews"]), (200, None))
        self.assertEqual(headers["fanin-partial"], "reviews")

    def test_failing_reviews_leave_a_partial_page(self):
        fault(REVIEWS, "down")
        status, headers, page = send(f"{SERVICE}/books/1")
        self.assertEqual((status, page["reviews"]), (200, None))
        self.assertEqual(headers["fanin-partial"], "reviews")

    def test_cached_book_needs_no_backend(self):
        send(f"{SERVICE}/books/1")
        fault(BOOKS, "down")
        self.assertEqual(send(f"{SERVICE}/books/1")[0], 200)

    def test_slow_books_are_a_504(self):
        fault(BOOKS, "slow")
        status, _, problem = send(f"{SERVICE}/books/504")
        self.assertEqual((status, problem["upstream"]), (504, "books"))

    def test_failing_books_are_a_502(self):
        fault(BOOKS, "down")
        status, _, problem = send(f"{SERVICE}/books/502")
        self.assertEqual((status, problem["upstream"]), (502, "books"))

    def test_quote(self):
        status, _, quote = send(f"{SERVICE}/quotes", '{"book": 1, "copies": 2}')
        self.assertEqual((status, quote["total"]), (200, 25.0))

    def test_wrong_quotes_are_refused(self):
        wrong = {
            "{": "not valid JSON",
            "[]": "the body must be an object",
            '{"book": "1"}': "book must be a number",
            '{"book": 1, "copies": 0}': "copies must be a number from 1 to 100",
            '{"book": 1, "copies": true}': "copies must be a number from 1 to 100",
        }
        for body, detail in wrong.items():
            with self.subTest(body):
                status, _, problem = send(f"{SERVICE}/quotes", body)
                self.assertEqual(status, 400)
                self.assertIn(detail, problem["detail"])

    def test_too_many_copies_are_a_conflict(self):
        self.assertEqual(send(f"{SERVICE}/quotes", '{"book": 1, "copies": 50}')[0], 409)


if __name__ == "__main__":
    unittest.main()
