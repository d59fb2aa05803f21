package ceto.library;

import com.datastax.oss.driver.api.mapper.annotations.Entity;
import java.util.List;
import java.util.Objects;

/** A user type. */
@Entity
public class Address {
  private String street;
  private Integer number;
  private List<Integer> floors;

  public Address() {}

  public Address(String street, Integer number, List<Integer> floors) {
    this.street = street;
    this.number = number;
    this.floors = floors;
  }

  public String getStreet() {
    return street;
  }

  public void setStreet(String street) {
    this.street = street;
  }

  public Integer getNumber() {
    return number;
  }

  public void setNumber(Integer number) {
    this.number = number;
  }

  public List<Integer> getFloors() {
    return floors;
  }

  public void setFloors(List<Integer> floors) {
    this.floors = floors;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Address that
        && Objects.equals(street, that.street)
        && Objects.equals(number, that.number)
        && Objects.equals(floors, that.floors);
  }

  @Override
  public int hashCode() {
    return Objects.hash(street, number, floors);
  }
}
