package peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.MediaType;
import org.springframework.http.client.reactive.ReactorClientHttpConnector;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.reactive.function.client.WebClient;
import reactor.core.publisher.Mono;
import reactor.netty.http.client.HttpClient;
import reactor.netty.resources.ConnectionProvider;

/** The peer in Spring WebFlux. */
@SpringBootApplication
@RestController
public class App {
  private static final List<String> KEYS = List.of("a", "b", "c", "d", "e");

  private final WebClient backend;
  private final ObjectMapper mapper;

  App(WebClient.Builder builder, ObjectMapper mapper, @Value("${peer.backend}") String url) {
    var pool = ConnectionProvider.builder("backend").maxConnections(2000).pendingAcquireMaxCount(10000).build();
    var client = HttpClient.create(pool).responseTimeout(Duration.ofSeconds(2));
    this.backend = builder.baseUrl(url).clientConnector(new ReactorClientHttpConnector(client)).build();
    this.mapper = mapper;
  }

  public static void main(String[] arguments) {
    SpringApplication.run(App.class, arguments);
  }

  @GetMapping(value = "/page/{id}", produces = MediaType.APPLICATION_JSON_VALUE)
  Mono<ObjectNode> page(@PathVariable String id) {
    List<Mono<JsonNode>> answers =
        KEYS.stream().map(key -> backend.get().uri("/{key}/{id}", key, id).retrieve().bodyToMono(JsonNode.class)).toList();
    return Mono.zip(
        answers,
        bodies -> {
          ObjectNode page = mapper.createObjectNode();
          for (int i = 0; i < KEYS.size(); i++) {
            page.set(KEYS.get(i), (JsonNode) bodies[i]);
          }
          return page;
        });
  }

  @GetMapping(value = "/search", produces = MediaType.APPLICATION_JSON_VALUE)
  Mono<JsonNode> search(@RequestParam String q) {
    return backend.get().uri("/ids?q={q}", q).retrieve().bodyToMono(JsonNode.class).flatMap(found -> {
      String ids = StreamSupport.stream(found.get("ids").spliterator(), false).map(JsonNode::asText).collect(Collectors.joining(","));
      return backend.get().uri("/vacancies?ids={ids}", ids).retrieve().bodyToMono(JsonNode.class);
    });
  }

  @GetMapping(value = "/raw", produces = MediaType.APPLICATION_JSON_VALUE)
  Mono<byte[]> raw() {
    return backend.get().uri("/raw").retrieve().bodyToMono(byte[].class);
  }
}
