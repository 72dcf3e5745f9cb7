package peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.MediaType;
import org.springframework.http.client.HttpComponentsClientHttpRequestFactory;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.client.RestClient;

/** The peer in Spring MVC on virtual threads: blocking code, parallel calls on threads of their own. */
@SpringBootApplication
@RestController
public class App {
  private static final List<String> KEYS = List.of("a", "b", "c", "d", "e");

  private final RestClient backend;
  private final ObjectMapper mapper;
  private final ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();

  App(RestClient.Builder builder, ObjectMapper mapper, @Value("${peer.backend}") String url) {
    var pool = PoolingHttpClientConnectionManagerBuilder.create().setMaxConnTotal(2000).setMaxConnPerRoute(2000).build();
    var client = HttpClients.custom().setConnectionManager(pool).build();
    this.backend = builder.baseUrl(url).requestFactory(new HttpComponentsClientHttpRequestFactory(client)).build();
    this.mapper = mapper;
  }

  public static void main(String[] arguments) {
    SpringApplication.run(App.class, arguments);
  }

  @GetMapping(value = "/page/{id}", produces = MediaType.APPLICATION_JSON_VALUE)
  ObjectNode page(@PathVariable String id) throws Exception {
    List<Future<JsonNode>> answers = new ArrayList<>();
    for (String key : KEYS) {
      answers.add(threads.submit(() -> backend.get().uri("/{key}/{id}", key, id).retrieve().body(JsonNode.class)));
    }
    ObjectNode page = mapper.createObjectNode();
    for (int i = 0; i < KEYS.size(); i++) {
      page.set(KEYS.get(i), answers.get(i).get());
    }
    return page;
  }

  @GetMapping(value = "/search", produces = MediaType.APPLICATION_JSON_VALUE)
  JsonNode search(@RequestParam String q) {
    JsonNode found = backend.get().uri("/ids?q={q}", q).retrieve().body(JsonNode.class);
    String ids = StreamSupport.stream(found.get("ids").spliterator(), false).map(JsonNode::asText).collect(Collectors.joining(","));
    return backend.get().uri("/vacancies?ids={ids}", ids).retrieve().body(JsonNode.class);
  }

  @GetMapping(value = "/raw", produces = MediaType.APPLICATION_JSON_VALUE)
  byte[] raw() {
    return backend.get().uri("/raw").retrieve().body(byte[].class);
  }
}
